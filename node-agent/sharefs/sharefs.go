// SPDX-License-Identifier: Apache-2.0

// Package sharefs mounts a tmpfs of bounded size for the shares. Tenants can write to their ledgers as much as there is room:
// on /run itself they would take it from the node's own services.
package sharefs

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount mounts a tmpfs of so many bytes at a directory, unless there is one. It is seen on the node where the directory is
// mounted into the agent's container with propagation in both directions, and stays when the agent ends. A directory with
// shares in it is left as it is: running containers have them.
func Mount(dir string, size int64) (mounted bool, err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return false, fmt.Errorf("making the directory of the shares: %w", err)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("reading what is mounted: %w", err)
	}
	defer mounts.Close()
	own, err := ownTmpfs(bufio.NewScanner(mounts), dir)
	if err != nil || own {
		return false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("looking for shares: %w", err)
	}
	if len(entries) > 0 {
		return false, nil
	}
	options := fmt.Sprintf("mode=0711,size=%d", size)
	if err := unix.Mount("sluice", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return false, fmt.Errorf("mounting a tmpfs for the shares: %w", err)
	}
	return true, nil
}

// ownTmpfs is true where the topmost mount at a directory is a whole tmpfs, not a directory of one, such as /run. A line of
// mountinfo has the mount's root in its file system as fourth field, its place as fifth, and its type after a dash.
func ownTmpfs(lines *bufio.Scanner, dir string) (bool, error) {
	const root, place = 3, 4
	dir = filepath.Clean(dir)
	own := false
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !found || len(fields) <= place || fields[place] != dir {
			continue
		}
		own = fields[root] == "/" && strings.HasPrefix(after, "tmpfs ")
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("reading what is mounted: %w", err)
	}
	return own, nil
}
