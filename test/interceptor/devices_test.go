// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// told is what a process is told of its devices.
type told struct {
	PID, Error int
	CUDA       []struct {
		Total, Free, DeviceTotal uint64
	}
	NVML []struct {
		UUID                                    string
		Total, Used, Free, Total2, Used2, Free2 uint64
		Processes                               []process
	}
}

// tell runs tools/told with more of the environment, and leaves it waiting.
func (n *node) tell(t *testing.T, limit string, mibs uint64, extra ...string) (told, *program) {
	t.Helper()
	p := n.startWith(t, n.environment(t, limit), extra, "tools/told", fmt.Sprint(mibs))
	if !p.out.Scan() {
		t.Fatalf("the program said nothing: %s", p.stderr.String())
	}
	var got told
	if err := json.Unmarshal(p.out.Bytes(), &got); err != nil {
		t.Fatalf("the program printed %q: %v", p.out.Text(), err)
	}
	return got, p
}

// ledgerOf reads the ledger of one device of a share that stands alone.
func (n *node) ledgerOf(t *testing.T, uuid string) ledger {
	t.Helper()
	name := strings.TrimPrefix(strings.TrimPrefix(uuid, "GPU-"), "MIG-")
	return readLedger(t, filepath.Join(n.ledgerDir(), name))
}

// CUDA and NVML tell a process the same: its limit, what its share uses, and nobody else.
func TestBothViewsAgree(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	neighbour := n.start(t, "", "link/linear", "4")
	for s, more := neighbour.next(t); more && s.Step != "full"; s, more = neighbour.next(t) {
		neighbour.resume(t)
	}
	got, p := n.tell(t, limitText, 1000)
	if len(got.CUDA) != 1 || len(got.NVML) != 1 {
		t.Fatalf("told %+v", got)
	}
	cuda, nvml, want := got.CUDA[0], got.NVML[0], contextBytes+1000*mib
	if cuda.Total != limit || cuda.DeviceTotal != limit || cuda.Total-cuda.Free != want {
		t.Errorf("CUDA tells %+v, want %d of %d used", cuda, want, limit)
	}
	if nvml.Total != limit || nvml.Used != want || nvml.Free != limit-want {
		t.Errorf("NVML tells %d of %d used and %d free, want %d of %d", nvml.Used, nvml.Total, nvml.Free, want, limit)
	}
	if nvml.Total2 != limit || nvml.Used2 != want || nvml.Free2 != limit-want {
		t.Errorf("NVML's second version tells %d of %d used and %d free, want %d of %d", nvml.Used2, nvml.Total2, nvml.Free2, want, limit)
	}
	if len(nvml.Processes) != 1 || nvml.Processes[0].PID != got.PID {
		t.Errorf("the process %d sees the processes %+v, want itself alone", got.PID, nvml.Processes)
	}
	p.resume(t)
	p.end(t)
	neighbour.stop(t)
}

// Devices are told apart by their UUIDs, whatever order the process sees them in.
func TestDevicesByUUID(t *testing.T) {
	t.Parallel()
	n := newNode(t, 2)
	second := n.seen(t, 1).UUID
	_, p := n.tell(t, limitText, 1000, "CUDA_VISIBLE_DEVICES=1,0")
	for i, want := range []uint64{contextBytes, contextBytes + 1000*mib} {
		seen := n.seen(t, i)
		if l := n.ledgerOf(t, seen.UUID); l.Held != want || seen.UsedBytes != want {
			t.Errorf("GPU %d: the ledger has %d, NVML sees %d, want %d", i, l.Held, seen.UsedBytes, want)
		}
	}
	p.resume(t)
	p.end(t)
	_, p = n.tell(t, limitText, 1000, "CUDA_VISIBLE_DEVICES="+second)
	if l := n.ledgerOf(t, second); l.Held != contextBytes+1000*mib {
		t.Errorf("named by its UUID, the second GPU's ledger has %d", l.Held)
	}
	p.resume(t)
	p.end(t)
}

// Whichever devices a process sees, in whichever order, each has the limit that its UUID has.
func TestVisibleDevices(t *testing.T) {
	t.Parallel()
	n := newNode(t, 3)
	uuids := []string{n.seen(t, 0).UUID, n.seen(t, 1).UUID, n.seen(t, 2).UUID}
	limits := fmt.Sprintf("%s=3Gi,%s=4Gi,%s=5Gi", uuids[0], uuids[1], uuids[2])
	tests := []struct {
		visible string
		want    []int // devices, as the driver counts them all
	}{
		{visible: "0,1,2", want: []int{0, 1, 2}},
		{visible: "2,0", want: []int{2, 0}},
		{visible: "1", want: []int{1}},
		{visible: "2,1,0", want: []int{2, 1, 0}},
		{visible: uuids[1] + "," + uuids[0], want: []int{1, 0}},
		{visible: "1,-1,0", want: []int{1}},
	}
	for _, tc := range tests {
		got, p := n.tell(t, limits, 100, "CUDA_VISIBLE_DEVICES="+tc.visible)
		if len(got.CUDA) != len(tc.want) {
			t.Errorf("with %q %d devices, want %d", tc.visible, len(got.CUDA), len(tc.want))
		}
		for i := range min(len(got.CUDA), len(tc.want)) {
			if want := uint64(3+tc.want[i]) * 1024 * mib; got.CUDA[i].Total != want || got.CUDA[i].DeviceTotal != want {
				t.Errorf("with %q device %d has a total of %d, want %d", tc.visible, i, got.CUDA[i].Total, want)
			}
		}
		p.resume(t)
		p.end(t)
	}
}

// Memory of another device than the current one is that device's.
func TestMemoryOfAnotherDevice(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pool", "vmm"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 2)
			p := n.start(t, limitText, "tools/peer_pool", way)
			s, _ := p.next(t)
			seen := n.seen(t, 1)
			l := n.ledgerOf(t, seen.UUID)
			if s.Error != outOfMemory || seen.UsedBytes > limit || limit-seen.UsedBytes >= 512*mib+contextBytes || l.Held < seen.UsedBytes {
				t.Errorf("%d pieces, error %d; NVML sees %d, the ledger has %d", s.Pieces, s.Error, seen.UsedBytes, l.Held)
			}
			if first := n.seen(t, 0); first.UsedBytes != contextBytes || n.ledgerOf(t, first.UUID).Held != contextBytes {
				t.Errorf("the current device has %d bytes, want its context alone", first.UsedBytes)
			}
			p.resume(t)
			p.end(t)
		})
	}
}

// A MIG device has a limit of its own.
func TestMIGDevice(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	n.state += "-mig"
	n.fakegpu(t, "create", "--board", "h200-141gb", "--gpus", "1", "--mig", "on")
	n.text(t, "", "tools/mig")
	p := n.start(t, limitText, "lookup/linear")
	for s, more := p.next(t); more; s, more = p.next(t) {
		expectation{piece: 256 * mib}.check(t, s, n.seen(t, 0), n.ledger(t))
		p.resume(t)
	}
	p.end(t)
}

// Three hundred processes that start at once: the library costs each next to nothing.
func TestManyStartsAtOnce(t *testing.T) {
	const processes = 300
	n := newNode(t, 1)
	n.state += "-large" // the largest board has room for that many contexts
	n.fakegpu(t, "create", "--board", "b300-269gb", "--gpus", "1")
	p := n.start(t, "200Gi", "tools/starts", fmt.Sprint(processes))
	s, _ := p.next(t)
	l := n.ledgerOf(t, n.seen(t, 0).UUID)
	if s.Pieces != processes || l.Slots != processes {
		t.Errorf("%d of %d processes started, %d have slots", s.Pieces, processes, l.Slots)
	}
	t.Logf("thread CPU time in the library, p99: %.2f ms; waiting for the lock, p99: %.2f ms", float64(l.StartCPUP99Ns)/1e6, float64(l.LockWaitP99Ns)/1e6)
	if l.StartCPUP99Ns >= 5_000_000 {
		t.Errorf("a start costs %d ns of CPU time in the library, want less than 5 ms", l.StartCPUP99Ns)
	}
	p.resume(t)
	p.end(t)
}

// Within its limit on a GPU that others have filled, a process gets the driver's refusal, counted apart, and is told what is
// really free.
func TestFullGPUWithinTheLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	neighbour := n.start(t, "", "link/linear", "550")
	for s, more := neighbour.next(t); more && s.Step != "full"; s, more = neighbour.next(t) {
		neighbour.resume(t)
	}
	p := n.start(t, limitText, "lookup/linear")
	for s, more := p.next(t); more; s, more = p.next(t) {
		l, room := n.ledger(t), 143155*mib-n.seen(t, 0).UsedBytes
		if s.Total != limit || s.Free != min(limit-l.Held, room) {
			t.Errorf("at %q told %d free of %d; the ledger has %d, the GPU has room for %d", s.Step, s.Free, s.Total, l.Held, room)
		}
		if s.Step == "full" && (s.Error != outOfMemory || l.Held != contextBytes+uint64(s.Pieces)*256*mib || l.Refused != 0 || l.RefusedByDriver == 0) {
			t.Errorf("%d pieces, error %d; the ledger has %+v", s.Pieces, s.Error, l)
		}
		p.resume(t)
	}
	p.end(t)
	neighbour.stop(t)
}
