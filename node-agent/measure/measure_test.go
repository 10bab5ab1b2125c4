// SPDX-License-Identifier: Apache-2.0

package measure_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/measure"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

const mebi = 1 << 20

var errInjected = errors.New("injected")

// node is all that a meter looks at: one H200 in shares of 8 GiB, one claim a share.
type node struct {
	claims   map[string]checkpoint.Claim
	contexts checkpoint.Contexts
	words    map[string]limits.Words
	holders  map[string][]limits.Holder
	driver   map[string][]nvml.Process
	// during runs while NVML is asked.
	during func()

	contextsErr, saveErr error
	sick                 string
	saves                int
}

var (
	_ measure.Records  = &node{}
	_ measure.Hardware = &node{}
	_ measure.Shares   = &node{}
)

func newNode(claims ...string) *node {
	n := &node{
		claims: map[string]checkpoint.Claim{}, words: map[string]limits.Words{},
		holders: map[string][]limits.Holder{}, driver: map[string][]nvml.Process{}, during: func() {},
	}
	for _, uid := range claims {
		n.claims[uid] = checkpoint.Claim{UID: uid, State: checkpoint.Prepared, Results: []checkpoint.Result{result("GPU-0")}}
		n.words[uid] = limits.Words{MemoryLimit: 8 << 30, Context: shares.ContextBytes}
	}
	return n
}

func result(gpu string) checkpoint.Result {
	return checkpoint.Result{GPU: gpu, Device: "gpu-0", Memory: 8 << 30, Shared: true, Enforced: true}
}

// process is one of a share with a context that costs so much, and 300 MiB beside.
func (n *node) process(claim, device string, pid int, cost uint64) {
	const allocated = 300 * mebi
	n.holders[claim] = append(n.holders[claim], limits.Holder{PID: pid, Stamp: uint64(pid), Held: shares.ContextBytes + allocated})
	n.driver[device] = append(n.driver[device], nvml.Process{PID: pid, Bytes: cost + allocated})
}

func (n *node) Claims() (checkpoint.Claims, error) { return checkpoint.Claims{Claims: n.claims}, nil }

func (*node) Published() (checkpoint.Published, error) {
	gpu := func(uuid string) checkpoint.PublishedGPU {
		return checkpoint.PublishedGPU{
			Form:  v1alpha1.GPUDecision{UUID: uuid, Sharing: v1alpha1.SharingSoftware},
			Facts: checkpoint.Facts{UUID: uuid, Product: "NVIDIA H200", DriverVersion: "580"},
		}
	}
	return checkpoint.Published{GPUs: []checkpoint.PublishedGPU{gpu("GPU-0"), gpu("GPU-1")}}, nil
}

func (n *node) Contexts() (checkpoint.Contexts, error) { return n.contexts, n.contextsErr }

func (n *node) SaveContexts(c checkpoint.Contexts) error {
	if n.saveErr != nil {
		return n.saveErr
	}
	n.saves++
	n.contexts = c
	return nil
}

func (n *node) Processes(_ context.Context, gpu, device string) ([]nvml.Process, error) {
	n.during()
	if n.sick == gpu {
		return nil, errInjected
	}
	return n.driver[device], nil
}

func (n *node) Words(claim string, _ int) (limits.Words, error) {
	words, ok := n.words[claim]
	if !ok {
		return words, limits.ErrNoShare
	}
	return words, nil
}

func (n *node) Holders(claim string, _ int) ([]limits.Holder, error) {
	return slices.Clone(n.holders[claim]), nil
}

func (n *node) SetOverhead(claim string, _ int, bytes uint64) error {
	words, err := n.Words(claim, 0)
	words.Overhead = bytes
	n.words[claim] = words
	return err
}

func (n *node) meter() *measure.Meter {
	return &measure.Meter{Records: n, Hardware: n, Shares: n, Log: logr.Discard()}
}

func figure(bytes uint64) []checkpoint.ContextFigure {
	return []checkpoint.ContextFigure{{Product: "NVIDIA H200", Driver: "580", Mode: "Software", Bytes: bytes}}
}

func TestLook(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(n *node)
		want   []checkpoint.ContextFigure
	}{
		{name: "two processes show what a context costs", change: func(*node) {}, want: figure(518 * mebi)},
		{name: "a ledger that changes while the driver is asked shows nothing", change: func(n *node) {
			n.during = func() { n.holders["a"][0].Held++ }
		}},
		{name: "nor does a process that another has taken the place of", change: func(n *node) {
			n.during = func() { n.holders["a"][0].PID++ }
		}},
		{name: "a process with two shares of a device is counted by neither", change: func(n *node) {
			n.holders["b"] = slices.Clone(n.holders["a"])
		}},
		{name: "a process that shares memory is not comparable", change: func(n *node) { n.holders["a"][0].Imported = 1 }},
		{name: "a claim that is being prepared is left alone", change: func(n *node) {
			c := n.claims["a"]
			c.State = checkpoint.Preparing
			n.claims["a"] = c
		}},
		{name: "a share that is being released is left alone", change: func(n *node) { delete(n.words, "a") }},
		{name: "a GPU that is not offered any more has no figures", change: func(n *node) { n.claims["a"].Results[0].GPU = "GPU-9" }},
		{name: "a MIG instance has figures of its own", change: func(n *node) {
			r := &n.claims["a"].Results[0]
			r.Placement, r.Instance = &checkpoint.Placement{Profile: "1g.18gb"}, &checkpoint.Instance{UUID: "MIG-0"}
			n.driver["MIG-0"], n.driver["GPU-0"] = n.driver["GPU-0"], nil
		}, want: []checkpoint.ContextFigure{{Product: "NVIDIA H200", Driver: "580", Profile: "1g.18gb", Mode: "Software", Bytes: 518 * mebi}}},
		{name: "a record that cannot be read is written anew", change: func(n *node) { n.contextsErr = errInjected }, want: figure(518 * mebi)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode("a", "b")
			n.process("a", "GPU-0", 101, 518*mebi)
			n.process("a", "GPU-0", 102, 518*mebi)
			tc.change(n)
			m := n.meter()
			for range 2 {
				if err := m.Look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, n.contexts.Figures); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
			if n.saves > 1 {
				t.Errorf("the same figures were written %d times", n.saves)
			}
		})
	}
}

func TestASickGPUTakesNothingFromTheOthers(t *testing.T) {
	n := newNode("a", "b")
	n.claims["a"].Results[0].GPU = "GPU-1"
	n.process("a", "GPU-1", 101, 518*mebi)
	n.process("b", "GPU-0", 102, 518*mebi)
	n.process("b", "GPU-0", 103, 518*mebi)
	n.sick = "GPU-1"
	if err := n.meter().Look(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("the failure is %v, want that of the GPU", err)
	}
	if diff := cmp.Diff(figure(518*mebi), n.contexts.Figures); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

func TestAFigureThatCouldNotBeWrittenIsFoundAgain(t *testing.T) {
	n := newNode("a")
	n.process("a", "GPU-0", 101, 518*mebi)
	n.process("a", "GPU-0", 102, 518*mebi)
	m := n.meter()
	n.saveErr = errInjected
	if err := m.Look(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("the failure is %v, want that of writing", err)
	}
	n.saveErr = nil
	if err := m.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(figure(518*mebi), n.contexts.Figures); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

func TestARunningShareKeepsItsFigureAndIsChargedTheRest(t *testing.T) {
	n := newNode("a")
	n.process("a", "GPU-0", 101, 700*mebi)
	m := n.meter()
	for range 4 {
		if err := m.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := limits.Words{MemoryLimit: 8 << 30, Context: shares.ContextBytes, Overhead: 60 * mebi}
	if diff := cmp.Diff(want, n.words["a"]); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
	if len(n.contexts.Figures) != 0 {
		t.Errorf("one claim alone made %v of it for all", n.contexts.Figures)
	}
}

func TestWhatNewSharesAreCharged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(n *node, r *checkpoint.Result)
		want   uint64
	}{
		{name: "the figure", change: func(*node, *checkpoint.Result) {}, want: 518 * mebi},
		{name: "the safe one on an instance that nobody has measured", change: func(_ *node, r *checkpoint.Result) {
			r.Placement = &checkpoint.Placement{Profile: "1g.18gb"}
		}, want: shares.ContextBytes},
		{name: "the safe one where the record cannot be read", change: func(n *node, _ *checkpoint.Result) {
			n.contexts, n.contextsErr = checkpoint.Contexts{}, errInjected
		}, want: shares.ContextBytes},
		{name: "the safe one where the record holds nonsense", change: func(n *node, _ *checkpoint.Result) {
			n.contexts.Figures = figure(1)
		}, want: shares.ContextBytes},
		{name: "the safe one on a GPU that is not offered", change: func(_ *node, r *checkpoint.Result) { r.GPU = "GPU-9" }, want: shares.ContextBytes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode()
			n.contexts.Figures = figure(518 * mebi)
			r := result("GPU-0")
			tc.change(n, &r)
			if got := (measure.Figures{Records: n, Log: logr.Discard()}).Context(r); got != tc.want {
				t.Errorf("a context is charged %d, want %d", got, tc.want)
			}
		})
	}
}
