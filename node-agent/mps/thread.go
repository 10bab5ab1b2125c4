// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/nodens"
)

// shmOptions bound the files that server and clients of a device meet in. Their pages are charged to who writes them.
const shmOptions = "mode=1777,size=1g"

// enterProcess takes the thread to where a process is: its mount namespace and its root.
func enterProcess(proc string, pid int) error {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	root, err := os.Open(filepath.Join(dir, "root"))
	if err != nil {
		return fmt.Errorf("opening the root of the daemon: %w", err)
	}
	defer root.Close()
	if err := nodens.Enter(filepath.Join(dir, "ns", "mnt")); err != nil {
		return err
	}
	if err := unix.Fchdir(int(root.Fd())); err != nil {
		return fmt.Errorf("going to the root of the daemon: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("taking over the root of the daemon: %w", err)
	}
	return nil
}

// makeDirs makes a device's directories, empty but for the record, and the file system that is to be its clients' /dev/shm.
func (d *Door) makeDirs(device string) error {
	if err := os.MkdirAll(d.dir(device), 0o711); err != nil {
		return fmt.Errorf("making the directory of the daemon: %w", err)
	}
	// Sockets of a daemon that was killed would be in the way. The directory itself stays: containers have it mounted.
	for _, name := range []string{"control", server} {
		if err := os.RemoveAll(filepath.Join(d.pipe(device), name)); err != nil {
			return fmt.Errorf("removing an old socket: %w", err)
		}
	}
	for path, mode := range map[string]fs.FileMode{d.pipe(device): 0o755, d.logs(device): 0o700, d.shm(device): 0o1777} {
		if err := os.MkdirAll(path, mode); err != nil {
			return fmt.Errorf("making a directory of the daemon: %w", err)
		}
	}
	mounted, err := mountPoint(d.shm(device))
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount("shm", d.shm(device), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, shmOptions); err != nil {
		return fmt.Errorf("mounting the shared memory of the clients: %w", err)
	}
	return nil
}

// mountPoint is true for a directory on another file system than the one above it.
func mountPoint(path string) (bool, error) {
	var own, above unix.Stat_t
	if err := errors.Join(unix.Stat(path, &own), unix.Stat(filepath.Dir(path), &above)); err != nil {
		return false, fmt.Errorf("looking at %s: %w", path, err)
	}
	return own.Dev != above.Dev, nil
}

// furnish gives the thread a mount namespace in which the device's shared memory is /dev/shm, and in which the driver's root
// has the directories of the daemons.
func (d *Door) furnish(device string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	// What is unmounted on the node is to go here too; what is mounted here is to stay here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keeping mounts from the node: %w", err)
	}
	root := d.options.DriverRoot
	if root != "/" {
		inside := filepath.Join(root, d.options.Dir)
		if err := os.MkdirAll(inside, 0o711); err != nil {
			return fmt.Errorf("making the directory of the daemons in the driver's root: %w", err)
		}
		if err := unix.Mount(d.options.Dir, inside, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting the directory of the daemons in the driver's root: %w", err)
		}
	}
	shm := filepath.Join(root, "dev", "shm")
	if err := os.MkdirAll(shm, 0o1777); err != nil {
		return fmt.Errorf("making /dev/shm: %w", err)
	}
	if err := unix.Mount(d.shm(device), shm, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting /dev/shm: %w", err)
	}
	return nil
}

// openCgroup makes the cgroup of a device's daemon; nil where daemons have none of their own.
func (d *Door) openCgroup(device string) (*os.File, error) {
	if d.options.Cgroup == "" {
		return nil, nil //nolint:nilnil // nothing is what is wanted
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(d.options.Cgroup), &stat); err != nil {
		return nil, fmt.Errorf("looking at the cgroup of the daemons: %w", err)
	}
	if stat.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("%s is not of cgroup v2, which MPS needs to outlive the agent: %w", d.options.Cgroup, errors.ErrUnsupported)
	}
	path := filepath.Join(d.options.Cgroup, device)
	// Kernels end what is born into a cgroup that was ended before (seen on 6.18), so an old one is not used again. One with
	// servers in it, whose daemon has ended by itself, was not.
	_ = os.Remove(path)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("making the cgroup of the daemon: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the cgroup of the daemon: %w", err)
	}
	return file, nil
}

// removeCgroup ends what a daemon has left behind, such as servers, and removes its cgroup.
func (d *Door) removeCgroup(device string) error {
	path := filepath.Join(d.options.Cgroup, device)
	if d.options.Cgroup == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ending what is left of the daemon: %w", err)
	}
	// A process that is being ended is in the way for a moment; what stays is empty, and removed for the device's next daemon.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("removing the cgroup of the daemon: %w", err)
	}
	return nil
}
