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

	"github.com/sluice-gpu/sluice/node-agent/nodens"
)

// source is what the tmpfs is called where mounts are listed.
const source = "sluice"

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
	own, err := topmost(bufio.NewScanner(mounts), dir, "tmpfs ")
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
	if err := unix.Mount(source, dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return false, fmt.Errorf("mounting a tmpfs for the shares: %w", err)
	}
	return true, nil
}

// Unmount takes what Mount has mounted away from the node once it is empty. An agent after the one that mounted it has it as a
// volume, whose end the node does not see: so it is done in the node's own mount namespace, a file of which is named; "" is the
// agent's. What somebody else has mounted there stays, and so does the directory: the agent's container has it as a volume.
func Unmount(dir, namespace string) error {
	return nodens.OnThread(func() error { //nolint:wrapcheck // it is the function's own error
		if err := nodens.Enter(namespace); err != nil {
			return fmt.Errorf("unmounting the shares: %w", err)
		}
		mounts, err := os.Open("/proc/thread-self/mountinfo")
		if err != nil {
			return fmt.Errorf("reading what is mounted: %w", err)
		}
		defer mounts.Close()
		own, err := topmost(bufio.NewScanner(mounts), dir, "tmpfs "+source+" ")
		if err != nil || !own {
			return err
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting the shares: %w", err)
		}
		return nil
	})
}

// topmost is true where the topmost mount at a directory is a whole file system of a kind, not a directory of one, such as /run.
// A line of mountinfo has the mount's root in its file system as fourth field, its place as fifth, and type and source after a
// dash.
func topmost(lines *bufio.Scanner, dir, kind string) (bool, error) {
	const root, place = 3, 4
	dir = filepath.Clean(dir)
	own := false
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !found || len(fields) <= place || fields[place] != dir {
			continue
		}
		own = fields[root] == "/" && strings.HasPrefix(after, kind)
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("reading what is mounted: %w", err)
	}
	return own, nil
}
