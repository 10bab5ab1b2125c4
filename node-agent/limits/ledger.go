// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What this package reads of a ledger. Every byte of it is a tenant's: it is read by calls that cannot fault, within the
// size that a ledger has, and believed nothing that was not asked of the kernel.
const (
	usageMagic  = 0x55434c53
	usageSlots  = 1024
	usageUnit   = 4096
	slotsOffset = 4096
	slotSize    = 64

	minReaderOffset = 8
	slotsUsedOffset = 12
	orphanOffset    = 16
	refusedOffset   = 32
	waitTimeOffset  = 96
	stampOffset     = 8
	exportedOffset  = 16
	importedOffset  = 24

	refusedByDriverOffset = 40
)

// Holder is a living process that keeps a slot of a ledger.
type Holder struct {
	// PID is the process, as the kernel names it to this one.
	PID int
	// Stamp tells it from every other that has the slot before or after it.
	Stamp uint64
	// Held is what it says it holds, Exported and Imported what it shares with others, in bytes.
	Held, Exported, Imported uint64
}

// Ledger is what a share's ledger says. But for the processes, which the kernel names, all of it is the tenant's word.
type Ledger struct {
	// Holders are the living processes, in the order of their slots; All is false where some may be missing.
	Holders []Holder
	All     bool
	// Orphaned is what is held that no living process has allocated, in bytes.
	Orphaned uint64
	// Refused are the allocations that were refused by the limit, RefusedByDriver those that the driver refused within it.
	Refused, RefusedByDriver uint64
	// GPUTime is the time of work that is done, WaitTime how long launches waited for their turn, in ns.
	GPUTime, WaitTime uint64
}

// Holders are the living processes of a share, in the order of their slots; none where it has no ledger.
func (d *Door) Holders(claimUID string, index int) ([]Holder, error) {
	ledger, err := d.Ledger(claimUID, index, math.MaxInt64)
	return ledger.Holders, err
}

// Ledger reads the ledger of a share, and finds its processes as far as they can be found in so much of the thread's time: the
// kernel answers by going through all locks of the ledger, of which a tenant can take any number.
func (d *Door) Ledger(claimUID string, index int, budget time.Duration) (Ledger, error) {
	file, err := d.open(claimUID, index, UsageFile, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return Ledger{All: true}, nil
	}
	if err != nil {
		return Ledger{}, fmt.Errorf("opening the ledger of share %d of claim %s: %w", index, claimUID, err)
	}
	defer file.Close()
	page := make([]byte, usageSize)
	if _, err := io.ReadFull(io.NewSectionReader(file, 0, usageSize), page); err != nil {
		return Ledger{}, fmt.Errorf("reading the ledger of share %d of claim %s: %w", index, claimUID, err)
	}
	if binary.NativeEndian.Uint32(page) != usageMagic || binary.NativeEndian.Uint32(page[minReaderOffset:]) > version {
		return Ledger{All: true}, nil
	}
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(page[at:]) }
	ledger := Ledger{
		Orphaned: word(orphanOffset), Refused: word(refusedOffset), RefusedByDriver: word(refusedByDriverOffset),
		GPUTime: word(gpuTimeOffset), WaitTime: word(waitTimeOffset),
	}
	if ledger.Holders, ledger.All, err = living(file, page, budget); err != nil {
		return Ledger{}, fmt.Errorf("finding the processes of share %d of claim %s: %w", index, claimUID, err)
	}
	return ledger, nil
}

// living are the processes that hold the locks of their slots.
func living(file *os.File, page []byte, budget time.Duration) (holders []Holder, all bool, err error) {
	runtime.LockOSThread() // its time is what is measured
	defer runtime.UnlockOSThread()
	begun, err := spent()
	if err != nil {
		return nil, false, err
	}
	for i := range int(min(binary.NativeEndian.Uint32(page[slotsUsedOffset:]), usageSlots)) {
		at := slotsOffset + i*slotSize
		slot := page[at : at+slotSize]
		if binary.NativeEndian.Uint64(slot[stampOffset:]) == 0 {
			continue
		}
		if now, err := spent(); err != nil || now-begun > int64(budget) {
			return holders, false, err
		}
		pid, err := lockedBy(file, int64(at))
		if err != nil {
			return nil, false, fmt.Errorf("asking for the lock of slot %d: %w", i, err)
		}
		if pid > 0 {
			holders = append(holders, holder(pid, slot))
		}
	}
	return holders, true, nil
}

func holder(pid int, slot []byte) Holder {
	return Holder{
		PID: pid, Stamp: binary.NativeEndian.Uint64(slot[stampOffset:]),
		Held:     uint64(uint32(binary.NativeEndian.Uint64(slot))) * usageUnit, // the lower half
		Exported: binary.NativeEndian.Uint64(slot[exportedOffset:]), Imported: binary.NativeEndian.Uint64(slot[importedOffset:]),
	}
}

// lockedBy is the process that holds the lock of a byte; 0 where none does that this process can see.
func lockedBy(file *os.File, at int64) (int, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: 1}
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err //nolint:wrapcheck // the caller says which lock
		case lock.Type == unix.F_UNLCK:
			return 0, nil
		default:
			return int(lock.Pid), nil
		}
	}
}

// open opens a file of a share that is there. A FIFO or device that somebody has put in its place neither blocks nor acts.
func (d *Door) open(claimUID string, index int, name string, flags int) (*os.File, error) {
	if err := validateUID(claimUID); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was opened
	}
	defer root.Close() //nolint:errcheck // it was only looked into
	path := filepath.Join(claimUID, strconv.Itoa(index), name)
	file, err := root.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was opened
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, file.Close(), ErrBadShare)
	}
	return file, nil
}
