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
	stampOffset     = 8
	exportedOffset  = 16
	importedOffset  = 24
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

// Holders are the living processes of a share, in the order of their slots; none where it has no ledger.
func (d *Door) Holders(claimUID string, index int) ([]Holder, error) {
	holders, _, err := d.HoldersWithin(claimUID, index, math.MaxInt64)
	return holders, err
}

// HoldersWithin are the living processes of a share as far as they can be found in so much of the thread's time: the kernel
// answers by going through all locks of the ledger, of which a tenant can take any number. All is false where some are missing.
func (d *Door) HoldersWithin(claimUID string, index int, budget time.Duration) (holders []Holder, all bool, err error) {
	file, err := d.open(claimUID, index, UsageFile, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("opening the ledger of share %d of claim %s: %w", index, claimUID, err)
	}
	defer file.Close()
	runtime.LockOSThread() // its time is what is measured
	defer runtime.UnlockOSThread()
	begun, err := spent()
	if err != nil {
		return nil, false, err
	}
	page := make([]byte, usageSize)
	if _, err := io.ReadFull(io.NewSectionReader(file, 0, usageSize), page); err != nil {
		return nil, false, fmt.Errorf("reading the ledger of share %d of claim %s: %w", index, claimUID, err)
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(page[at:]) }
	if word(0) != usageMagic || word(minReaderOffset) > version {
		return nil, true, nil
	}
	for i := range int(min(word(slotsUsedOffset), usageSlots)) {
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
			return nil, false, fmt.Errorf("asking for the lock of slot %d of share %d of claim %s: %w", i, index, claimUID, err)
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
