// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HeartbeatFile is the name of the node's heartbeat page, which every container with a share reads.
const HeartbeatFile = "heartbeat"

// HeartbeatPeriod is the time between two beats. Processes take the agent for gone after four.
const HeartbeatPeriod = 250 * time.Millisecond

// HeartbeatPath is where a container finds the heartbeat page.
func HeartbeatPath() string { return path.Join(ContainerRoot, HeartbeatFile) }

// Heartbeat is the page into which the active agent writes that it is there.
type Heartbeat struct {
	path    string
	inode   uint64
	device  uint64
	mapping []byte
}

// Heartbeat makes the page where it is missing and opens it. Opening changes nothing of it: another agent may be active.
func (d *Door) Heartbeat() (*Heartbeat, error) {
	h := &Heartbeat{path: filepath.Join(d.root, HeartbeatFile)}
	return h, h.open()
}

// open makes and maps the page.
func (h *Heartbeat) open() error {
	file, err := os.OpenFile(h.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return fmt.Errorf("opening the heartbeat: %w", err)
	}
	defer file.Close()
	if err := extend(file); err != nil {
		return fmt.Errorf("making the heartbeat: %w", err)
	}
	if err := file.Chmod(0o644); err != nil {
		return fmt.Errorf("making the heartbeat readable: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return fmt.Errorf("looking at the heartbeat: %w", err)
	}
	mapping, err := unix.Mmap(int(file.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the heartbeat: %w", err)
	}
	h.mapping, h.inode, h.device = mapping, stat.Ino, stat.Dev
	return nil
}

// Beat writes the time, in nanoseconds of CLOCK_MONOTONIC, which is the same in every container. Where somebody has removed
// the page or mounted over it, there is a new one from then on.
func (h *Heartbeat) Beat(now uint64) error {
	var stat unix.Stat_t
	if err := unix.Lstat(h.path, &stat); err != nil || stat.Ino != h.inode || stat.Dev != h.device {
		if err := h.Close(); err != nil {
			return err
		}
		if err := h.open(); err != nil {
			return err
		}
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&h.mapping[0])), now) //nolint:gosec // G103: containers read the word while it changes; a mapping begins a page
	return nil
}

// Close ends the use of the page, which stays.
func (h *Heartbeat) Close() error {
	if h.mapping == nil {
		return nil
	}
	mapping := h.mapping
	h.mapping = nil
	if err := unix.Munmap(mapping); err != nil {
		return fmt.Errorf("unmapping the heartbeat: %w", err)
	}
	return nil
}

// Monotonic is the time that Beat writes.
func Monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(now.Nano()), nil
}
