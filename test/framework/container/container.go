// SPDX-License-Identifier: Apache-2.0

// Package container starts programs as a container runtime does, with the mounts and the environment that a CDI spec names
// and nothing else of Sluice's: mount and PID namespaces and a root directory of its own, over the machine's programs and
// libraries. A package that uses it calls Inside first thing in its TestMain; it must be root, at least in a user namespace.
package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// planVariable carries the plan to the process that becomes the program.
const planVariable = "CONTAINER_PLAN"

// Mount is a bind mount.
type Mount struct {
	HostPath      string   `json:"hostPath"`
	ContainerPath string   `json:"containerPath"`
	Options       []string `json:"options"`
}

// Plan is what is to be started.
type Plan struct {
	// Mounts are made in order; a later one at the same path takes the place of an earlier one.
	Mounts []Mount
	// Shared are directories of the machine that are there under the same path.
	Shared []string
	// Hidden are directories over which an empty file system is mounted in the end.
	Hidden []string
	// Wait is a FIFO; the program starts once somebody has opened it for writing, and closed it again. "" does not wait.
	Wait string
	// Env and Args are the program's.
	Env, Args []string
	// User is whom the program runs as; 0 is root.
	User int
}

// Command is the command that runs the plan's program.
func Command(p Plan) (*exec.Cmd, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the plan: %w", err)
	}
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // the test ends it
	cmd.Env = []string{planVariable + "=" + string(data)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS, Cloneflags: syscall.CLONE_NEWPID,
	}
	return cmd, nil
}

// Inside becomes the program of a plan where this process was started for one, and returns otherwise.
func Inside() {
	text := os.Getenv(planVariable)
	if text == "" {
		return
	}
	fmt.Fprintf(os.Stderr, "starting in a container: %v\n", become(text))
	os.Exit(125) //nolint:revive // deep-exit: this process is not the test's
}

func become(text string) error {
	var p Plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("decoding the plan: %w", err)
	}
	if err := wait(p.Wait); err != nil {
		return err
	}
	const root = "/mnt"
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("root", root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting the root: %w", err)
	}
	if err := system(root); err != nil {
		return err
	}
	for _, dir := range p.Shared {
		if err := bind(root, Mount{HostPath: dir, ContainerPath: dir}); err != nil {
			return err
		}
	}
	for i, m := range p.Mounts {
		if slices.ContainsFunc(p.Mounts[i+1:], func(later Mount) bool { return later.ContainerPath == m.ContainerPath }) {
			continue
		}
		if err := bind(root, m); err != nil {
			return err
		}
	}
	for _, dir := range p.Hidden {
		if err := unix.Mount("hidden", filepath.Join(root, dir), "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("hiding %s: %w", dir, err)
		}
	}
	return enter(root, p)
}

// wait waits until a FIFO has been opened and closed, as a runtime has a container wait while its hooks run.
func wait(fifo string) error {
	if fifo == "" {
		return nil
	}
	if _, err := os.ReadFile(fifo); err != nil {
		return fmt.Errorf("waiting to be started: %w", err)
	}
	return nil
}

// system puts the machine's programs and libraries, /dev and a /proc of its own below the root.
func system(root string) error {
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		return fmt.Errorf("making the place of /proc: %w", err)
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64", "/dev"} {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return fmt.Errorf("looking at %s: %w", dir, err)
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(dir)
			if err == nil {
				err = os.Symlink(target, filepath.Join(root, dir))
			}
			if err != nil {
				return fmt.Errorf("linking %s: %w", dir, err)
			}
		default:
			if err := bind(root, Mount{HostPath: dir, ContainerPath: dir}); err != nil {
				return err
			}
		}
	}
	return nil
}

// bind makes the place of a mount and the mount, with its options in a second step as the kernel wants it.
func bind(root string, m Mount) error {
	target := filepath.Join(root, m.ContainerPath)
	info, err := os.Stat(m.HostPath)
	if err != nil {
		return fmt.Errorf("mounting at %s: %w", m.ContainerPath, err)
	}
	place := filepath.Dir(target)
	if info.IsDir() {
		place = target
	}
	if err := os.MkdirAll(place, 0o755); err != nil {
		return fmt.Errorf("making the place of %s: %w", m.ContainerPath, err)
	}
	if !info.IsDir() {
		if err := os.WriteFile(target, nil, 0o600); err != nil {
			return fmt.Errorf("making the place of %s: %w", m.ContainerPath, err)
		}
	}
	if err := unix.Mount(m.HostPath, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", m.HostPath, m.ContainerPath, err)
	}
	if len(m.Options) == 0 {
		return nil
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT)
	for option, flag := range map[string]uintptr{
		"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	} {
		if slices.Contains(m.Options, option) {
			flags |= flag
		}
	}
	if err := unix.Mount("", target, "", flags, ""); err != nil {
		return fmt.Errorf("mounting %s with %s: %w", m.ContainerPath, strings.Join(m.Options, ","), err)
	}
	return nil
}

// enter makes the root this process's and starts the program in its place.
func enter(root string, p Plan) error {
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("entering the root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("entering the root: %w", err)
	}
	if p.User != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(p.User), syscall.Setuid(p.User)); err != nil {
			return fmt.Errorf("becoming user %d: %w", p.User, err)
		}
	}
	return fmt.Errorf("starting %s: %w", p.Args[0], unix.Exec(p.Args[0], p.Args, p.Env))
}
