// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrNoShare says that there is no such share, or that its page is not complete.
var ErrNoShare = errors.New("there is no such share")

// Words are those of a share's page that say what it may hold.
type Words struct {
	MemoryLimit, Context, Overhead uint64
	// ComputeShare is in hundredths of a percent.
	ComputeShare uint32
}

// Words reads a share's page.
func (d *Door) Words(claimUID string, index int) (words Words, err error) {
	err = d.onPage(claimUID, index, func(p *page) {
		words = Words{
			MemoryLimit: atomic.LoadUint64(&p.memoryLimit), Context: atomic.LoadUint64(&p.context), Overhead: atomic.LoadUint64(&p.overhead),
			ComputeShare: atomic.LoadUint32(&p.computeShare),
		}
	})
	return words, err
}

// SetOverhead changes what is charged with each context that the share's processes make from then on.
func (d *Door) SetOverhead(claimUID string, index int, bytes uint64) error {
	return d.onPage(claimUID, index, func(p *page) { atomic.StoreUint64(&p.overhead, bytes) })
}

// SetPolicy changes whether the share may have more compute than was granted.
func (d *Door) SetPolicy(claimUID string, index int, policy uint32) error {
	if policy > PolicyCap {
		return fmt.Errorf("policy %d is unknown: %w", policy, ErrBadShare)
	}
	return d.onPage(claimUID, index, func(p *page) { atomic.StoreUint32(&p.policy, policy) })
}

// onPage works with the complete page of a share that is there.
func (d *Door) onPage(claimUID string, index int, work func(*page)) (err error) {
	file, err := d.open(claimUID, index, LimitsFile, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNoShare
	}
	if err != nil {
		return fmt.Errorf("opening the page of share %d of claim %s: %w", index, claimUID, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// It must be as long as its mapping, or reading the mapping would end the process.
	if info, err := file.Stat(); err != nil || info.Size() != pageSize {
		return errors.Join(err, ErrNoShare)
	}
	mapping, err := unix.Mmap(int(file.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the page of share %d of claim %s: %w", index, claimUID, err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(mapping)) }()
	p, err := pageIn(mapping)
	if err != nil {
		return err
	}
	if !p.complete() {
		return ErrNoShare
	}
	work(p)
	return nil
}
