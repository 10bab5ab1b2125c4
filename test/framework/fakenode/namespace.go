// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideVariable marks the process that Main started in a namespace of its own.
const insideVariable = "FAKENODE_INSIDE"

// procDriver is where NVIDIA's driver shows the minors of MIG's device nodes.
const procDriver = "/proc/driver"

// Main runs a package's tests in a mount namespace of their own in which /proc/driver can be written, and ends the
// process. It starts the test binary again, since a process with threads cannot change its namespaces for all of them.
// Without root it needs user namespaces. What is given to be done afterwards is done when the tests are over.
func Main(m *testing.M, afterwards ...func()) {
	os.Exit(run(m, afterwards)) //nolint:revive // deep-exit: it is all that a TestMain does
}

// run is the status of the tests, here or in the process that it starts for them.
func run(m *testing.M, afterwards []func()) int {
	if os.Getenv(insideVariable) == "" {
		return again()
	}
	if err := unix.Mount("sluice", procDriver, "tmpfs", 0, "mode=0755"); err != nil {
		fmt.Fprintf(os.Stderr, "mounting a %s for the tests: %v\n", procDriver, err)
		return 1
	}
	defer func() {
		for _, do := range afterwards {
			do()
		}
	}()
	return m.Run()
}

// again runs this binary with the same arguments in a new mount namespace and returns its exit status.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx,gosec // go test's own timeout ends it; G702: these are its own arguments
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	// The death signal follows the thread that starts the process.
	runtime.LockOSThread()
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	default:
		fmt.Fprintf(os.Stderr, "running the tests in a mount namespace: %v\n", err)
		return 1
	}
}

// settle fits the node into the namespace that Main made: the MIG minors where nvcdi reads them, and device nodes where
// mknod was not allowed. Without Main there is nothing to settle.
func (n *Node) settle(tb testing.TB) error {
	tb.Helper()
	if os.Getenv(insideVariable) == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(n.Root, procDriver))
	if err != nil {
		return fmt.Errorf("reading the driver root: %w", err)
	}
	for _, entry := range entries {
		target := filepath.Join(procDriver, entry.Name())
		if err := os.RemoveAll(target); err != nil {
			return fmt.Errorf("removing what an earlier node left: %w", err)
		}
		if err := os.CopyFS(target, os.DirFS(filepath.Join(n.Root, procDriver, entry.Name()))); err != nil {
			return fmt.Errorf("copying %s: %w", entry.Name(), err)
		}
	}
	return filepath.WalkDir(filepath.Join(n.Root, "dev"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if err := bindDevice(path); err != nil {
			return err
		}
		// A mount would outlive the test's directory.
		tb.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
		return nil
	})
}

// bindDevice makes a plain file a device node.
func bindDevice(path string) error {
	if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding a device to %s: %w", path, err)
	}
	return nil
}

// Hide takes a file or directory below Root away until the returned function is called.
func (n *Node) Hide(tb testing.TB, name string) (back func()) {
	tb.Helper()
	path := filepath.Join(n.Root, name)
	bound := unix.Unmount(path, unix.MNT_DETACH) == nil
	if err := os.Rename(path, path+".away"); err != nil {
		tb.Fatal(err)
	}
	return func() {
		tb.Helper()
		if err := os.Rename(path+".away", path); err != nil {
			tb.Fatal(err)
		}
		if !bound {
			return
		}
		if err := bindDevice(path); err != nil {
			tb.Fatal(err)
		}
	}
}
