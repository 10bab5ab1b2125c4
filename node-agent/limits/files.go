// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The files of a share, under their names on the host and in the container.
const (
	// LimitsFile is the page that the agent writes and processes read.
	LimitsFile = "limits"
	// UsageFile is the ledger of the share's processes. Only shares that are held inside the processes have one.
	UsageFile = "usage"
	// BellFile is the FIFO by which processes wake the agent; beside UsageFile.
	BellFile = "bell"
)

const (
	// usageSize is the exact length of a usage file.
	usageSize = 4096 + 1024*64
	// usageMode lets processes of every user keep their slots.
	usageMode = 0o666
	// bellMode lets processes of every user ring, and nobody but the agent hear.
	bellMode = 0o622
)

// makeUsage makes the ledger's file with all of its room, so that a full file system is an error here and not a SIGBUS in
// a tenant's process. What is in the file belongs to the processes: it is never written, and nothing depends on it.
func makeUsage(root *os.Root, name string) (err error) {
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("opening the ledger: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("closing the ledger: %w", closed)
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("looking at the ledger: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("the ledger is no regular file: %w", ErrBadShare)
	}
	if err := reserve(file, info.Size(), usageSize); err != nil {
		return err
	}
	if err := shorten(file, info.Size()); err != nil {
		return err
	}
	if err := file.Chmod(usageMode); err != nil {
		return fmt.Errorf("opening the ledger to processes: %w", err)
	}
	return nil
}

// shorten takes back what its processes have added to a ledger: it is room that others need.
func shorten(file *os.File, size int64) error {
	if size <= usageSize {
		return nil
	}
	if err := file.Truncate(usageSize); err != nil {
		return fmt.Errorf("shortening a ledger: %w", err)
	}
	return nil
}

// Trim shortens every ledger that is longer than a ledger is.
func (d *Door) Trim() error {
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return fmt.Errorf("opening the share directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // it was only looked into
	ledgers, err := fs.Glob(root.FS(), path.Join("*", "*", UsageFile))
	if err != nil {
		return fmt.Errorf("looking for ledgers: %w", err)
	}
	var failed []error
	for _, name := range ledgers {
		failed = append(failed, trim(root, name))
	}
	return errors.Join(failed...)
}

func trim(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && (!info.Mode().IsRegular() || info.Size() <= usageSize)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at a ledger: %w", err)
	}
	file, err := root.OpenFile(name, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening a ledger: %w", err)
	}
	return errors.Join(shorten(file, info.Size()), file.Close())
}

// reserve gives a file at least a length, and room on its file system for all of it, without changing what is in it.
func reserve(file *os.File, have, want int64) error {
	for {
		err := unix.Fallocate(int(file.Fd()), 0, 0, want)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("making room for %s: %w", filepath.Base(file.Name()), err)
		case have >= want:
			return nil
		}
		if _, err := file.WriteAt(make([]byte, want-have), have); err != nil {
			return fmt.Errorf("making room for %s: %w", filepath.Base(file.Name()), err)
		}
		return nil
	}
}

// makeBell makes the FIFO. It is made by descriptor of its directory, which only the agent can write into.
func makeBell(root *os.Root, dir string) error {
	directory, err := root.Open(dir)
	if err != nil {
		return fmt.Errorf("opening the share's directory: %w", err)
	}
	defer directory.Close()
	at := int(directory.Fd())
	if err := unix.Mknodat(at, BellFile, unix.S_IFIFO|bellMode, 0); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the bell: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(at, BellFile, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("looking at the bell: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return fmt.Errorf("the bell is no FIFO: %w", ErrBadShare)
	}
	// The umask may have taken from the mode.
	if err := unix.Fchmodat(at, BellFile, bellMode, 0); err != nil {
		return fmt.Errorf("opening the bell to processes: %w", err)
	}
	return nil
}
