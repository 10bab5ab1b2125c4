// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// States of a gate.
const (
	// GateNone is that of a gate for which nobody arbitrates: processes pace themselves.
	GateNone uint32 = 0
	// GateClosed lets nothing pass.
	GateClosed uint32 = 1
	gateOpen   uint32 = 2
	// GateClosing ends a slice before its time.
	GateClosing uint32 = 3
	// GateOverrun is that of a slice that did not drain in time.
	GateOverrun uint32 = 4
)

const (
	gateContended uint32 = 1 << 0
	// sequenceShift is where the sequence begins in a gate's word and in a pace, launchesShift the launches in a pace.
	sequenceShift = 3
	launchesShift = 32
	// pacedVersion is the first version whose gate means anything.
	pacedVersion = 2
	// futexWake is the operation of futex(2), of a word that is shared with other processes.
	futexWake = 1
)

// Turn is a share as it is arbitrated: its page stays mapped, its ledger and its bell open. It is not safe for concurrent
// use; but for Close, nothing of it allocates once the number of its processes has settled.
type Turn struct {
	// ClaimUID and Index name the share.
	ClaimUID string
	Index    int

	mapping []byte
	page    *page
	inode   uint64
	usage   int
	bell    int
	buffer  []byte
	dead    []deadSlot
	paces   []Pace
	// asked is what questions for lives have cost of this reading, in ns; from is the slot at which the next begins, and none is
	// asked before quiet.
	asked, quiet int64
	from         int
}

// Turn opens a share to be arbitrated. Without one that is complete and held inside its processes it is ErrNoShare.
func (d *Door) Turn(claimUID string, index int) (turn *Turn, err error) {
	t := &Turn{ClaimUID: claimUID, Index: index, usage: -1, bell: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if err := t.mapPage(d); err != nil {
		return nil, err
	}
	if !t.page.complete() || t.page.version < pacedVersion || atomic.LoadUint32(&t.page.enforce)&EnforceCompute == 0 {
		return nil, ErrNoShare
	}
	ledger, err := d.open(claimUID, index, UsageFile, os.O_RDONLY)
	if err != nil {
		return nil, noShare(err, "ledger", claimUID, index)
	}
	t.usage, err = own(ledger)
	if err != nil {
		return nil, noShare(err, "ledger", claimUID, index)
	}
	if t.bell, err = d.openBell(claimUID, index); err != nil {
		return nil, noShare(err, "bell", claimUID, index)
	}
	t.grow(1)
	return t, nil
}

// noShare is ErrNoShare where a file is missing.
func noShare(err error, what, claimUID string, index int) error {
	if errors.Is(err, os.ErrNotExist) {
		return ErrNoShare
	}
	return fmt.Errorf("opening the %s of share %d of claim %s: %w", what, index, claimUID, err)
}

func (t *Turn) mapPage(d *Door) error {
	file, err := d.open(t.ClaimUID, t.Index, LimitsFile, os.O_RDWR)
	if err != nil {
		return noShare(err, "page", t.ClaimUID, t.Index)
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return noShare(err, "page", t.ClaimUID, t.Index)
	}
	// It must be as long as its mapping, or reading the mapping would end the process.
	if stat.Size != pageSize {
		return ErrNoShare
	}
	t.inode = stat.Ino
	t.mapping, err = unix.Mmap(int(file.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return noShare(err, "page", t.ClaimUID, t.Index)
	}
	t.page, err = pageIn(t.mapping)
	return err
}

// own takes the descriptor out of a file, so that nothing of the runtime stands between it and the kernel.
func own(file *os.File) (int, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return fd, errors.Join(err, file.Close())
}

// openBell opens the FIFO for both directions: it is never at its end then, and processes always find a reader.
func (d *Door) openBell(claimUID string, index int) (int, error) {
	if err := validateUID(claimUID); err != nil {
		return -1, err
	}
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return -1, err //nolint:wrapcheck // the caller says what was opened
	}
	defer root.Close() //nolint:errcheck // it was only looked into
	name := filepath.Join(claimUID, strconv.Itoa(index), BellFile)
	file, err := root.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err //nolint:wrapcheck // the caller says what was opened
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return -1, errors.Join(err, file.Close(), ErrBadShare)
	}
	fd, err := own(file)
	if err != nil {
		return fd, err
	}
	return fd, unix.SetNonblock(fd, true) //nolint:wrapcheck // the caller says what was opened
}

// Close ends the use of the share, which stays.
func (t *Turn) Close() error {
	var failed []error
	if t.mapping != nil {
		failed = append(failed, unix.Munmap(t.mapping))
		t.mapping, t.page = nil, nil
	}
	for _, fd := range []*int{&t.usage, &t.bell} {
		if *fd >= 0 {
			failed = append(failed, unix.Close(*fd))
			*fd = -1
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("closing share %d of claim %s: %w", t.Index, t.ClaimUID, err)
	}
	return nil
}

// Inode tells the share from another that is made under its name later.
func (t *Turn) Inode() uint64 { return t.inode }

// Device is the UUID of the device.
func (t *Turn) Device() [16]byte { return t.page.uuid }

// Compute is the share, in hundredths of a percent, and its policy, as they are now.
func (t *Turn) Compute() (share, policy uint32) {
	return min(atomic.LoadUint32(&t.page.computeShare), 10000), atomic.LoadUint32(&t.page.policy)
}

// Sequence is that of the gate's last opening.
func (t *Turn) Sequence() uint32 { return atomic.LoadUint32(&t.page.gate.word) >> sequenceShift }

// Open opens the gate with the next sequence.
func (t *Turn) Open(until uint64, contended bool) {
	t.Prolong(until, contended)
	atomic.StoreUint64(&t.page.gate.finish, 0)
	atomic.StoreUint32(&t.page.gate.word, (t.Sequence()+1)<<sequenceShift|gateOpen)
}

// Prolong changes until when an open gate is open, and whether others want the device.
func (t *Turn) Prolong(until uint64, contended bool) {
	var flags uint32
	if contended {
		flags = gateContended
	}
	atomic.StoreUint64(&t.page.gate.openUntil, until)
	atomic.StoreUint32(&t.page.gate.flags, flags)
}

// Set gives the gate another state than open.
func (t *Turn) Set(state uint32) {
	atomic.StoreUint32(&t.page.gate.word, t.Sequence()<<sequenceShift|state)
}

// Finish lets each process complete so many launches of the slice that is over.
func (t *Turn) Finish(launches uint32) {
	atomic.StoreUint64(&t.page.gate.finish, uint64(t.Sequence())<<launchesShift|uint64(launches))
}

// Wake wakes those who wait for the gate's word.
func (t *Turn) Wake() error {
	word := uintptr(unsafe.Pointer(&t.page.gate.word)) //nolint:gosec // G103: the kernel takes the word by its address
	if _, _, errno := unix.Syscall(unix.SYS_FUTEX, word, futexWake, math.MaxInt32); errno != 0 {
		return fmt.Errorf("waking the processes of share %d of claim %s: %w", t.Index, t.ClaimUID, errno)
	}
	return nil
}

// Bell is the descriptor of the bell, which can be read while somebody has rung.
func (t *Turn) Bell() int { return t.bell }

// Hush takes back what has been rung so far.
func (t *Turn) Hush(buffer []byte) error {
	_, err := unix.Read(t.bell, buffer)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("reading the bell of share %d of claim %s: %w", t.Index, t.ClaimUID, err)
	}
	return nil
}

// Found is a share that is there.
type Found struct {
	ClaimUID string
	Index    int
	// Inode is the page's; 0 while it has none.
	Inode uint64
}

// Find lists the shares that have a directory, complete or not, in order.
func (d *Door) Find() ([]Found, error) {
	uids, err := d.List()
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, uid := range uids {
		entries, err := os.ReadDir(filepath.Join(d.root, uid))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing the shares of claim %s: %w", uid, err)
		}
		for _, entry := range entries {
			index, err := strconv.Atoi(entry.Name())
			if err != nil || index < 0 || index > maxIndex || !entry.IsDir() {
				continue
			}
			share := Found{ClaimUID: uid, Index: index}
			var stat unix.Stat_t
			if unix.Lstat(filepath.Join(d.root, uid, entry.Name(), LimitsFile), &stat) == nil {
				share.Inode = stat.Ino
			}
			found = append(found, share)
		}
	}
	slices.SortStableFunc(found, func(a, b Found) int {
		if a.ClaimUID != b.ClaimUID {
			return 0
		}
		return a.Index - b.Index
	})
	return found, nil
}
