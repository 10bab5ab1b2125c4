// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"
)

// The Go half of interceptor/include/sluice_abi.h. A test compares every offset with what a C program built from the
// header prints.
const (
	version   = 2
	minReader = 1
	// magic is the first word of a complete page.
	magic = 0x45434c53
	// pageSize is the exact length of a limits file.
	pageSize = 4096
	// gateSize is what is kept for the gate's words.
	gateSize = 128
)

// Bits of Share.Enforce. Without a bit an amount is only counted.
const (
	EnforceMemory  uint32 = 1 << 0
	EnforceCompute uint32 = 1 << 1
)

// Values of Share.Policy.
const (
	// PolicyShare gives at least the compute share while others want the GPU; idle time may be used.
	PolicyShare uint32 = 0
	// PolicyCap never gives more than the compute share.
	PolicyCap uint32 = 1
)

// page mirrors struct sluice_limits.
type page struct {
	magic        uint32
	version      uint32
	minReader    uint32
	_            uint32
	uuid         [16]byte
	parentUUID   [16]byte
	memoryLimit  uint64
	context      uint64
	overhead     uint64
	computeShare uint32
	policy       uint32
	enforce      uint32
	_            uint32
	_            [40]byte
	gate         gateWords
	_            [pageSize - 128 - gateSize]byte
}

// gateWords mirrors struct sluice_gate.
type gateWords struct {
	word      uint32
	flags     uint32
	openUntil uint64
	finish    uint64
	_         [gateSize - 24]byte
}

// errShortPage says that a mapping cannot hold a page.
var errShortPage = errors.New("mapping is smaller than a limits page or not aligned")

// pageIn is the page in a mapping, which must outlive it.
func pageIn(mapping []byte) (*page, error) {
	if len(mapping) != pageSize || uintptr(unsafe.Pointer(&mapping[0]))%unsafe.Alignof(page{}) != 0 { //nolint:gosec // G103: containers read the words while they change; only atomic stores into the mapping keep them whole
		return nil, errShortPage
	}
	return (*page)(unsafe.Pointer(&mapping[0])), nil //nolint:gosec // G103: length and alignment are checked above
}

// complete says whether the page was written to its end.
func (p *page) complete() bool {
	return atomic.LoadUint32(&p.magic) == magic
}

// fill writes the constant words of a page that is not complete, all others, and the magic last.
func (p *page) fill(device, parent [16]byte, share Share) {
	p.version = version
	p.minReader = minReader
	p.uuid = device
	p.parentUUID = parent
	p.store(share)
	atomic.StoreUint32(&p.magic, magic)
}

// store writes the words that may change while containers read them.
func (p *page) store(share Share) {
	atomic.StoreUint64(&p.memoryLimit, share.MemoryLimit)
	atomic.StoreUint64(&p.context, share.Context)
	atomic.StoreUint64(&p.overhead, share.Overhead)
	atomic.StoreUint32(&p.computeShare, share.ComputeShare)
	atomic.StoreUint32(&p.policy, share.Policy)
	atomic.StoreUint32(&p.enforce, share.Enforce)
}

// errUUID says that a text is not a device's UUID.
var errUUID = errors.New("not a GPU or MIG UUID")

// uuidBytes are the 16 bytes of GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx or MIG-..., as CUDA gives them.
func uuidBytes(uuid string) ([16]byte, error) {
	var out [16]byte
	text, found := strings.CutPrefix(uuid, "GPU-")
	if !found {
		text, found = strings.CutPrefix(uuid, "MIG-")
	}
	groups := strings.Split(text, "-")
	if !found || len(groups) != 5 || len(groups[0]) != 8 || len(groups[1]) != 4 || len(groups[2]) != 4 ||
		len(groups[3]) != 4 || len(groups[4]) != 12 {
		return out, fmt.Errorf("%q: %w", uuid, errUUID)
	}
	if _, err := hex.Decode(out[:], []byte(strings.Join(groups, ""))); err != nil {
		return out, fmt.Errorf("%q: %w: %w", uuid, errUUID, err)
	}
	return out, nil
}
