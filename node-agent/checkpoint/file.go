// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Version is the version of both records. Reading refuses any other: a change of meaning raises it and brings a
// conversion from the old one; a field that may be left out does not.
const Version = 1

// ErrUnreadable says that a record is there but does not hold what this agent can understand.
var ErrUnreadable = errors.New("the checkpoint cannot be read")

const fileMode = 0o600

// read decodes a record into v, which holds what is true where the file has never been written, and says whether it has.
func read(path string, v any) (written bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the checkpoint: %w", err)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return true, fmt.Errorf("%s: %w: %w", path, ErrUnreadable, err)
	}
	if head.Version != Version {
		return true, fmt.Errorf("%s: %w: it has version %d, this agent knows version %d", path, ErrUnreadable, head.Version, Version)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return true, fmt.Errorf("%s: %w: %w", path, ErrUnreadable, err)
	}
	return true, nil
}

// replace writes a new file beside the old one and renames it over it. The file is synced before the rename, so that
// the name never leads to half a record, and the directory after it, so that the rename itself is not lost.
func replace(path string, v any) (err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the checkpoint %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	// One writer at a time holds the lock, so one name does; what a killed writer left is overwritten.
	temporary := path + ".new"
	if err := writeSynced(temporary, data); err != nil {
		return fmt.Errorf("writing the checkpoint %s: %w", temporary, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("replacing the checkpoint: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("syncing the state directory: %w", err)
	}
	return nil
}

func writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the file and the deed
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err //nolint:wrapcheck // the caller names the file and the deed
	}
	return f.Sync() //nolint:wrapcheck // the caller names the file and the deed
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the deed
	}
	syncErr := d.Sync()
	if closeErr := d.Close(); syncErr == nil {
		syncErr = closeErr
	}
	return syncErr //nolint:wrapcheck // the caller names the deed
}
