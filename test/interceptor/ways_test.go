// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"path/filepath"
	"testing"
)

const (
	limitText = "10Gi"
	limit     = 10240 * mib
	// The CUDA error for memory that is not there.
	outOfMemory = 2
)

// ways are the programs of interceptor/tests/programs, with what is particular to each.
var ways = []struct {
	name  string
	piece uint64 // bytes of one piece
	// Beyond the pieces, what the library may charge or the driver may take: a chunk of a pool that does not fit exactly.
	slack uint64
	// NVML sees less than was charged: managed memory that is not resident.
	ledgerAbove bool
	// The driver never refuses it.
	endless bool
	// The program stops by itself before the limit.
	short bool
}{
	{name: "linear", piece: 256 * mib},
	{name: "small", piece: mib, short: true},
	{name: "pitch", piece: 256 * mib},
	{name: "managed", piece: 256 * mib, ledgerAbove: true, endless: true},
	{name: "array", piece: 256 * mib},
	{name: "array3d", piece: 256 * mib},
	{name: "mipmap", piece: 342 * mib},
	{name: "async", piece: 256 * mib, slack: 32 * mib},
	{name: "pool", piece: 256 * mib, slack: 32 * mib},
	{name: "setpool", piece: 256 * mib, slack: 32 * mib},
	{name: "vmm", piece: 256 * mib},
	{name: "vmm_released", piece: 256 * mib},
	{name: "graph", piece: 256 * mib, slack: 32 * mib},
	{name: "capture", piece: 256 * mib, slack: 32 * mib},
	{name: "external", piece: 256 * mib},
	{name: "context", piece: 518 * mib},
	{name: "green", piece: 6 * mib, short: true},
	{name: "module", piece: 64 * mib, slack: 64 * mib, ledgerAbove: true},
	{name: "stack", piece: 132 * 2048 * 4096},
}

func TestEveryProgramIsListed(t *testing.T) {
	listed := map[string]bool{"driver": true, "way": true}
	for _, tc := range ways {
		listed[tc.name] = true
	}
	files, err := filepath.Glob(filepath.Join(repository, "interceptor/tests/programs/*.c"))
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the programs: %d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file[:len(file)-len(filepath.Ext(file))])
		if !listed[name] {
			t.Errorf("%s is no row of the table of ways", name)
		}
	}
}

// Without the library a program reaches the GPU's size: what the limits are held against is real.
func TestNativeReachesTheGPU(t *testing.T) {
	t.Parallel()
	for _, tc := range ways {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			p := n.start(t, "", "link/"+tc.name)
			for s, more := p.next(t); more; s, more = p.next(t) {
				used := n.seen(t, 0).UsedBytes
				if s.Total != s.DeviceTotal || s.Total-s.Free != used {
					t.Errorf("at %q CUDA tells %d of %d used, NVML %d", s.Step, s.Total-s.Free, s.Total, used)
				}
				if s.Step == "full" && !tc.endless && !tc.short && (s.Error != outOfMemory || s.Free >= tc.piece+tc.slack) {
					t.Errorf("refused with error %d while %d bytes were free", s.Error, s.Free)
				}
				if s.Step == "empty" && used != contextBytes {
					t.Errorf("after giving back by call %d NVML sees %d bytes, want the context's %d", s.By, used, contextBytes)
				}
				p.resume(t)
			}
			p.end(t)
		})
	}
}

// Under the library no way leads past the limit, whichever way the program reaches the driver.
func TestNoWayPassesTheLimit(t *testing.T) {
	t.Parallel()
	for _, reach := range []string{"link", "dlsym", "lookup", "perthread"} {
		for _, tc := range ways {
			t.Run(reach+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, 1)
				p := n.start(t, limitText, reach+"/"+tc.name)
				for s, more := p.next(t); more; s, more = p.next(t) {
					want := expectation{piece: tc.piece, slack: tc.slack, above: tc.ledgerAbove, short: tc.short}
					want.check(t, s, n.seen(t, 0), n.ledger(t))
					p.resume(t)
				}
				p.end(t)
				if got := n.seen(t, 0).UsedBytes; got != 0 {
					t.Errorf("after the program NVML sees %d bytes", got)
				}
			})
		}
	}
}

// expectation is what has to hold at each step of a program under the limit.
type expectation struct {
	piece, slack uint64
	above, short bool
}

func (e expectation) check(t *testing.T, s step, seen gpu, l ledger) {
	t.Helper()
	if s.Total != limit || s.DeviceTotal != limit {
		t.Errorf("at %q the process is told a total of %d, of the device %d, want the limit %d", s.Step, s.Total, s.DeviceTotal, limit)
	}
	if s.Total-s.Free != l.Held {
		t.Errorf("at %q (call %d) the process is told %d bytes used, the ledger says %d", s.Step, s.By, s.Total-s.Free, l.Held)
	}
	if l.Held > limit || seen.UsedBytes > limit {
		t.Errorf("at %q (call %d) the ledger has %d and NVML sees %d, above the limit %d", s.Step, s.By, l.Held, seen.UsedBytes, limit)
	}
	if l.Held != seen.UsedBytes && (!e.above || l.Held < seen.UsedBytes) {
		t.Errorf("at %q (call %d) the ledger says %d, NVML sees %d", s.Step, s.By, l.Held, seen.UsedBytes)
	}
	if s.Step == "full" && !e.short {
		if s.Error != outOfMemory {
			t.Errorf("call %d: refused with error %d, want %d", s.By, s.Error, outOfMemory)
		}
		if s.Free >= e.piece+e.slack {
			t.Errorf("call %d: a piece of %d was refused while %d were free", s.By, e.piece, s.Free)
		}
	}
	if s.Step == "empty" && l.Held != contextBytes {
		t.Errorf("after giving back by call %d the ledger has %d bytes, want the context's %d", s.By, l.Held, contextBytes)
	}
}
