// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces are the process attributes of a node's supervisor: a session and a mount namespace of its own. Only root
// may make the latter outright; everybody else makes a user namespace with it, in which they are root.
func namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// mountDriver makes the fake driver look real from within the calling process's mount namespace, which must be its own:
// /proc/driver is the driver's, and device files that could not be made are character devices.
func mountDriver(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	proc := filepath.Join(root, "proc", "driver")
	if _, err := os.Stat(proc); err == nil {
		// The path is fixed in libraries that look for MIG's device minors, and nothing can be made below /proc itself.
		if err := unix.Mount("tmpfs", "/proc/driver", "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounting over /proc/driver: %w", err)
		}
		if err := os.CopyFS("/proc/driver", os.DirFS(proc)); err != nil {
			return fmt.Errorf("filling /proc/driver: %w", err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("looking for the driver's proc files: %w", err)
	}
	return bindDevices(filepath.Join(root, "dev"))
}

// bindDevices puts a character device on each plain file that stands for one: without root's rights none can be made.
func bindDevices(dev string) error {
	err := filepath.WalkDir(dev, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding a device on %s: %w", path, err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("providing device files: %w", err)
	}
	return nil
}
