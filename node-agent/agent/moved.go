// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// shareDirRecord is the file in the state directory that says where the shares are.
const shareDirRecord = "share-dir"

// uidLength is that of the UID that a share is named by.
const uidLength = 36

// errMoved says that this agent has other directories than the one before it, and tenants run that it would not know.
var errMoved = errors.New("put the directory back, or empty the node first")

// checkDirs refuses to begin where the state or the shares of running tenants are in other directories than this agent's: it
// would take those tenants for processes past the library. An agent before this one goes on meanwhile.
func checkDirs(c Config, records *checkpoint.Store) error {
	claims, err := records.Claims()
	if err != nil {
		return fmt.Errorf("reading the prepared claims: %w", err)
	}
	record := filepath.Join(c.StateDir, shareDirRecord)
	before, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading where the shares are: %w", err)
	}
	if len(claims.Claims) > 0 && len(before) > 0 && string(before) != c.ShareDir {
		return fmt.Errorf("the shares of %d claims are in %s, and this agent's in %s: %w", len(claims.Claims), before, c.ShareDir, errMoved)
	}
	if len(claims.Claims) == 0 && len(before) == 0 {
		if err := noShares(c); err != nil {
			return err
		}
	}
	if string(before) == c.ShareDir {
		return nil
	}
	// A full disk keeps no agent away: the next one records it.
	if err := os.WriteFile(record, []byte(c.ShareDir), 0o600); err != nil {
		_ = os.Remove(record)
	}
	return nil
}

// noShares is an error where there are shares, which somebody must have made who had another state directory.
func noShares(c Config) error {
	entries, err := os.ReadDir(c.ShareDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking at the shares: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() && len(entry.Name()) == uidLength {
			return fmt.Errorf("%s holds the share of claim %s, of which %s knows nothing: %w", c.ShareDir, entry.Name(), c.StateDir, errMoved)
		}
	}
	return nil
}
