// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Bits of what a process says of its pace.
const (
	// PaceWants says that somebody waits at the gate.
	PaceWants uint32 = 1 << 0
	// PaceRuns says that something was launched in the slice of that sequence.
	PaceRuns uint32 = 1 << 1
	// PaceDrained says that all of it is done.
	PaceDrained uint32 = 1 << 2

	paceBits = 7
)

const (
	paceOffset    = 56
	gpuTimeOffset = 88
)

// Pace is what one process says.
type Pace struct {
	// Sequence is the opening that it speaks of; Bits are PaceWants and so on; Launches those since it was last drained.
	Sequence, Bits, Launches uint32
}

// Paces is what the processes of a share say, and what they measured together.
type Paces struct {
	List    []Pace
	GPUTime uint64
}

// deadSlot is what a process said that was found dead. It counts no more until it says something else.
type deadSlot struct {
	stamp, pace uint64
	asked       int64
}

// askAgain is the time after which a process that was found dead is asked for again where its share is read: what was taken
// for death may have been a lock that was lost and taken anew.
const askAgain = 250_000_000

// mostAsked is what questions for lives may cost in one reading, in ns. The kernel answers by going through all locks of the
// ledger, of which a tenant can take any number. What is not asked counts as it was; and a share whose answers are slow is asked
// the more seldom, so that no more than one part in askRarely of the thread's time goes there.
const (
	mostAsked = 500_000
	askRarely = 20
)

// Read reads what the processes say. Where live is true, each that wants something or runs is asked of the kernel. The list
// holds until the next call.
func (t *Turn) Read(now int64, live bool) (Paces, error) {
	used, err := t.load()
	if err != nil {
		return Paces{}, err
	}
	t.paces = t.paces[:0]
	t.asked = 0
	for i := range used {
		slot := t.buffer[slotsOffset+i*slotSize:][:slotSize]
		stamp, pace := binary.NativeEndian.Uint64(slot[stampOffset:]), binary.NativeEndian.Uint64(slot[paceOffset:])
		if stamp == 0 || pace == 0 {
			continue
		}
		counts, err := t.counts(i, stamp, pace, now, live)
		if err != nil {
			return Paces{}, err
		}
		if counts {
			t.paces = append(t.paces, Pace{
				Sequence: uint32(pace) >> sequenceShift, Bits: uint32(pace) & paceBits, Launches: uint32(pace >> launchesShift),
			})
		}
	}
	if t.asked > mostAsked {
		t.quiet = now + askRarely*t.asked
	} else if live && now >= t.quiet {
		t.from = 0
	}
	return Paces{List: t.paces, GPUTime: binary.NativeEndian.Uint64(t.buffer[gpuTimeOffset:])}, nil
}

// counts says whether a slot is a living process', as far as it is known or asked.
func (t *Turn) counts(i int, stamp, pace uint64, now int64, live bool) (bool, error) {
	known := &t.dead[i]
	dead := known.stamp == stamp && known.pace == pace
	if uint32(pace)&(PaceWants|PaceRuns) == 0 || (!dead && !live) || (dead && !live && now-known.asked < askAgain) {
		return !dead, nil
	}
	if now < t.quiet || i < t.from || t.asked > mostAsked {
		return !dead, nil
	}
	alive, err := t.ask(i)
	if err != nil {
		return false, fmt.Errorf("asking for the lock of slot %d of share %d of claim %s: %w", i, t.Index, t.ClaimUID, err)
	}
	*known = deadSlot{}
	if !alive {
		*known = deadSlot{stamp: stamp, pace: pace, asked: now}
	}
	return alive, nil
}

// load reads the ledger and says how many slots of it are in use; none where it is not one that this version can read.
func (t *Turn) load() (int, error) {
	for {
		n, err := unix.Pread(t.usage, t.buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("reading the ledger of share %d of claim %s: %w", t.Index, t.ClaimUID, err)
		case n < len(t.buffer):
			// A tenant has cut it short: what is missing says nothing.
			clear(t.buffer[n:])
		}
		if binary.NativeEndian.Uint32(t.buffer) != usageMagic || binary.NativeEndian.Uint32(t.buffer[minReaderOffset:]) > version {
			return 0, nil
		}
		used := int(min(binary.NativeEndian.Uint32(t.buffer[slotsUsedOffset:]), usageSlots))
		if used <= len(t.dead) {
			return used, nil
		}
		t.grow(used)
	}
}

// grow makes room for so many slots.
func (t *Turn) grow(slots int) {
	dead := make([]deadSlot, slots)
	copy(dead, t.dead)
	t.dead = dead
	t.buffer = make([]byte, slotsOffset+slots*slotSize)
}

// locked says whether anybody holds the lock of a byte.
func locked(fd int, at int64) (bool, error) {
	for {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: 1}
		err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lock)
		if !errors.Is(err, unix.EINTR) {
			return lock.Type != unix.F_UNLCK, err //nolint:wrapcheck // the caller says which lock
		}
	}
}

// ask asks the kernel for the life of a slot's process, and counts what that cost.
func (t *Turn) ask(i int) (alive bool, err error) {
	begun, err := spent()
	if err != nil {
		return false, err
	}
	alive, failed := locked(t.usage, slotsOffset+int64(i)*slotSize)
	ended, err := spent()
	t.asked += ended - begun
	if t.asked > mostAsked {
		t.from = i + 1
	}
	return alive, errors.Join(failed, err)
}

// spent is the CPU time of the thread. What others took from it meanwhile is no fault of the tenant's.
func spent() (int64, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return now.Nano(), err //nolint:wrapcheck // the caller says what was asked
}
