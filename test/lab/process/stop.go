// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to this very process. A process that has ended is ErrGone.
func (id Identity) Signal(sig syscall.Signal) error {
	fd, err := id.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return send(fd, id.PID, sig)
}

// Stop asks the process to end, makes it end after the grace, and returns once it has.
// A process that has already ended is no error.
func (id Identity) Stop(grace time.Duration) error {
	fd, err := id.open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, 10 * time.Second}} {
		if err := send(fd, id.PID, step.sig); errors.Is(err, ErrGone) {
			return nil
		} else if err != nil {
			return err
		}
		ended, err := awaitEnd(fd, step.wait)
		if err != nil {
			return fmt.Errorf("waiting for process %d to end: %w", id.PID, err)
		}
		if ended {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end, even when killed", id.PID)
}

// Kill ends the process without a word to it, and returns once it has ended.
func (id Identity) Kill() error {
	fd, err := id.open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := send(fd, id.PID, syscall.SIGKILL); errors.Is(err, ErrGone) {
		return nil
	} else if err != nil {
		return err
	}
	ended, err := awaitEnd(fd, time.Minute)
	if err != nil {
		return fmt.Errorf("waiting for process %d to end: %w", id.PID, err)
	}
	if !ended {
		return fmt.Errorf("process %d does not end, even when killed", id.PID)
	}
	return nil
}

// open returns a descriptor of the process. It is opened before the start time is compared: from then on it can only
// mean the process compared, whatever happens to the PID.
func (id Identity) open() (int, error) {
	if id.PID <= 0 {
		return -1, ErrGone
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, fmt.Errorf("opening process %d: %w", id.PID, err)
	}
	if !id.Alive() {
		_ = unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}

func send(fd, pid int, sig syscall.Signal) error {
	err := unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("sending %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// awaitEnd waits until the process behind the descriptor has ended or the time is over.
func awaitEnd(fd int, limit time.Duration) (bool, error) {
	deadline := time.Now().Add(limit)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return true, nil
		}
		if left == 0 {
			return false, nil
		}
	}
}
