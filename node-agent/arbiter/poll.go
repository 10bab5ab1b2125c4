// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	decide "github.com/sluice-gpu/sluice/internal/arbiter"
)

// noPlace is the place of what is not a share's bell.
const noPlace = -1

// priority is that of the arbiter's thread among real-time ones: above those without one.
const priority = 10

// schedResetOnFork keeps threads that the runtime starts from this one from being real-time ones too.
const schedResetOnFork = 1

// poller sleeps until a bell rings. Each ring is told once, so that a bell need not be emptied each time it is served.
type poller struct {
	epoll, event int
	events       []unix.EpollEvent
	places       []int32
	// coarse says that the kernel has no epoll_pwait2.
	coarse bool
}

func newPoller() (*poller, error) {
	p := &poller{event: -1, events: make([]unix.EpollEvent, 64), places: make([]int32, 0, 64)}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making the arbiter's epoll: %w", err)
	}
	if p.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = p.add(p.event, noPlace)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the arbiter's eventfd: %w", err), p.close())
	}
	return p, nil
}

func (p *poller) close() error {
	failed := []error{unix.Close(p.epoll)}
	if p.event >= 0 {
		failed = append(failed, unix.Close(p.event))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("closing the arbiter's epoll: %w", err)
	}
	return nil
}

// add hears a descriptor from now on. It is forgotten when it is closed.
func (p *poller) add(fd int, place int32) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, place, unix.EPOLLIN|unix.EPOLLET)
}

// mask does not hear a descriptor until hear.
func (p *poller) mask(fd int, place int32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, place, 0)
}

func (p *poller) hear(fd int, place int32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, place, unix.EPOLLIN|unix.EPOLLET)
}

func (p *poller) control(op, fd int, place int32, events uint32) error {
	if err := unix.EpollCtl(p.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: place}); err != nil {
		return fmt.Errorf("changing which bells are heard: %w", err)
	}
	return nil
}

// notify ends the present or next wait.
func (p *poller) notify() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// It fails only where it has been notified so often already that it cannot be missed.
	_, _ = unix.Write(p.event, one[:])
}

// wait sleeps until something is heard, for so long at most, and returns the places of what was. They hold until the next
// call.
func (p *poller) wait(length decide.Time) ([]int32, error) {
	p.places = p.places[:0]
	n, err := p.sleep(max(0, length))
	if errors.Is(err, unix.EINTR) {
		return p.places, nil
	}
	if err != nil {
		return p.places, fmt.Errorf("waiting for bells: %w", err)
	}
	for i := range n {
		p.places = append(p.places, p.events[i].Fd)
	}
	return p.places, nil
}

func (p *poller) sleep(length decide.Time) (int, error) {
	if !p.coarse {
		n, err := p.pwait2(length)
		if !errors.Is(err, unix.ENOSYS) {
			return n, err
		}
		p.coarse = true
	}
	fds := []unix.PollFd{{Fd: int32(p.epoll), Events: unix.POLLIN}}
	timeout := unix.NsecToTimespec(int64(length))
	if _, err := unix.Ppoll(fds, &timeout, nil); err != nil {
		return 0, err //nolint:wrapcheck // the caller says what was done
	}
	return unix.EpollWait(p.epoll, p.events, 0) //nolint:wrapcheck // the caller says what was done
}

// pwait2 is epoll_pwait2(2), which knows times shorter than a millisecond.
func (p *poller) pwait2(length decide.Time) (int, error) {
	timeout := unix.NsecToTimespec(int64(length))
	var limit unsafe.Pointer
	if length < decide.Forever/2 {
		limit = unsafe.Pointer(&timeout) //nolint:gosec // G103: the kernel takes it by its address
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events[0])), //nolint:gosec // G103: the kernel takes them by their address
		uintptr(len(p.events)), uintptr(limit), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// beRealTime makes the calling thread one that runs before all that are not real-time.
func beRealTime() error {
	attributes := unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: priority, Flags: schedResetOnFork}
	attributes.Size = uint32(unsafe.Sizeof(attributes))
	if err := unix.SchedSetAttr(0, &attributes, 0); err != nil {
		return fmt.Errorf("asking for SCHED_FIFO, which needs CAP_SYS_NICE: %w", err)
	}
	return nil
}
