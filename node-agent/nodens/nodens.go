// SPDX-License-Identifier: Apache-2.0

// Package nodens does things where a node's own processes are: in the node's mount namespace, not the agent's container's.
package nodens

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f on a thread of its own, which ends with it: f may change the thread's namespaces and root.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and is the process's face in /proc. While it waits here, the next goroutine is
			// on another one.
			done <- OnThread(f)
			runtime.UnlockOSThread()
			return
		}
		done <- f() // The lock is kept, so the thread ends with the goroutine.
	}()
	return <-done
}

// Enter takes the thread into a mount namespace, to its root; "" leaves it where it is, free to go elsewhere.
func Enter(path string) error {
	var file *os.File
	if path != "" {
		var err error
		if file, err = os.Open(path); err != nil {
			return fmt.Errorf("opening the node's mount namespace: %w", err)
		}
		defer file.Close()
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("giving the thread a root of its own: %w", err)
	}
	if file == nil {
		return nil
	}
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the node's mount namespace: %w", err)
	}
	return nil
}
