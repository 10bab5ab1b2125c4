// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

const uuid = "GPU-0"

// seen is a Hopper GPU with MIG mode off.
func seen(change ...func(*gpu.GPU)) gpu.GPU {
	g := gpu.GPU{
		UUID: uuid, Product: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", MemoryBytes: 80 << 30,
		MIGMode: gpu.MIGDisabled, MIGModeSwitchable: true, MemorySlices: 8, ComputeSlices: 7,
		Profiles: []gpu.Profile{{Name: "7g.80gb", MemoryBytes: 80 << 30, ComputeSlices: 7, MemorySlices: 8, Starts: []int{0}, Max: 1}},
	}
	for _, c := range change {
		c(&g)
	}
	return g
}

func mode(m gpu.MIGMode, switchable bool) func(*gpu.GPU) {
	return func(g *gpu.GPU) { g.MIGMode, g.MIGModeSwitchable = m, switchable }
}

func decision(change ...func(*v1alpha1.GPUDecision)) v1alpha1.GPUDecision {
	d := v1alpha1.GPUDecision{
		UUID: uuid, Pool: "shared", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware,
		MemoryPercent: 150, ComputePercent: 100, MaxTenants: 8,
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func mig(d *v1alpha1.GPUDecision) {
	d.Pool, d.Partitioning, d.Sharing = "mig", v1alpha1.PartitioningMIG, v1alpha1.SharingExclusive
}

func exclusive(d *v1alpha1.GPUDecision) { d.Pool, d.Sharing = "exclusive", v1alpha1.SharingExclusive }

func tainted(reason string) func(*v1alpha1.GPUDecision) {
	return func(d *v1alpha1.GPUDecision) { d.Taint = v1alpha1.TaintReason(reason) }
}

func recorded(form v1alpha1.GPUDecision) checkpoint.Published {
	return checkpoint.Published{Version: 1, GPUs: []checkpoint.PublishedGPU{{Form: form, Facts: checkpoint.FactsOf(seen(), "580")}}}
}

func ptr[T any](v T) *T { return &v }

func TestPlanOfOneGPU(t *testing.T) {
	type want struct {
		form      *v1alpha1.GPUDecision
		reason    string
		message   string
		asDecided bool
	}
	look := gpu.Node{DriverVersion: "580", GPUs: []gpu.GPU{seen()}}
	with := func(change ...func(*gpu.GPU)) gpu.Node {
		return gpu.Node{DriverVersion: "580", GPUs: []gpu.GPU{seen(change...)}}
	}
	used := map[string]int{uuid: 1}
	decided := func(change ...func(*v1alpha1.GPUDecision)) []v1alpha1.GPUDecision {
		return []v1alpha1.GPUDecision{decision(change...)}
	}
	for _, tc := range []struct {
		name string
		in   publish.Input
		want want
	}{
		{
			name: "a decided GPU is published as decided",
			in:   publish.Input{Look: look, Decisions: decided()},
			want: want{form: ptr(decision()), reason: v1alpha1.ReasonPublished, asDecided: true},
		},
		{
			name: "where somebody uses an instance by hand nobody new is sent",
			in: publish.Input{
				Look: look, Decisions: decided(), Record: recorded(decision()),
				Troubles: map[string]publish.Trouble{uuid: {Reason: v1alpha1.ReasonForeignInstances, Message: "used by a (1)"}},
			},
			want: want{form: ptr(decision(tainted("ForeignInstances"))), reason: v1alpha1.ReasonForeignInstances, message: "used by a (1)"},
		},
		{
			name: "and what was never published waits",
			in: publish.Input{
				Look: look, Decisions: decided(),
				Troubles: map[string]publish.Trouble{uuid: {Reason: v1alpha1.ReasonForeignInstances, Message: "used by a (1)"}},
			},
			want: want{reason: v1alpha1.ReasonForeignInstances, message: "used by a (1)"},
		},
		{
			name: "what a layout left and cannot go yet is no trouble of the next form",
			in: publish.Input{
				Look: look, Decisions: decided(), Troubles: map[string]publish.Trouble{uuid: {Reason: v1alpha1.ReasonInUse, Message: "used"}},
			},
			want: want{form: ptr(decision()), reason: v1alpha1.ReasonPublished, asDecided: true},
		},
		{
			name: "a GPU of no pool is not published",
			in:   publish.Input{Look: look},
			want: want{reason: v1alpha1.ReasonNoPool},
		},
		{
			name: "a taint that was decided is published",
			in:   publish.Input{Look: look, Decisions: decided(tainted("PoolDeleted")), Record: recorded(decision()), InUse: used},
			want: want{form: ptr(decision(tainted("PoolDeleted"))), reason: v1alpha1.ReasonPublished, asDecided: true},
		},
		{
			name: "other amounts are published at once, though the GPU is in use",
			in: publish.Input{
				Look: look, Decisions: decided(func(d *v1alpha1.GPUDecision) { d.MemoryPercent = 100 }), Record: recorded(decision()), InUse: used,
			},
			want: want{form: ptr(decision(func(d *v1alpha1.GPUDecision) { d.MemoryPercent = 100 })), reason: v1alpha1.ReasonPublished, asDecided: true},
		},
		{
			name: "a GPU in use keeps its shape, tainted, when another pool is decided",
			in:   publish.Input{Look: look, Decisions: decided(exclusive), Record: recorded(decision()), InUse: used},
			want: want{form: ptr(decision(tainted("PoolChanged"))), reason: v1alpha1.ReasonInUse, message: "pool shared published it"},
		},
		{
			name: "a GPU in use keeps its shape, tainted, when no pool holds it any more",
			in:   publish.Input{Look: look, Record: recorded(decision()), InUse: used},
			want: want{form: ptr(decision(tainted("NotSelected"))), reason: v1alpha1.ReasonInUse, message: "no pool holds the GPU"},
		},
		{
			name: "a GPU that is not in use changes its shape at once",
			in:   publish.Input{Look: look, Decisions: decided(exclusive), Record: recorded(decision())},
			want: want{form: ptr(decision(exclusive)), reason: v1alpha1.ReasonPublished, asDecided: true},
		},
		{
			name: "a GPU that is not in use goes when no pool holds it any more",
			in:   publish.Input{Look: look, Record: recorded(decision())},
			want: want{reason: v1alpha1.ReasonNoPool},
		},
		{
			name: "while the manager has not said anything a GPU stays as it is",
			in:   publish.Input{Look: look, Record: recorded(decision()), Undecided: true},
			want: want{form: ptr(decision()), reason: v1alpha1.ReasonPublished},
		},
		{
			name: "a Hopper GPU with MIG mode off is published for a MIG pool",
			in:   publish.Input{Look: look, Decisions: decided(mig)},
			want: want{form: ptr(decision(mig)), reason: v1alpha1.ReasonPublished, asDecided: true},
		},
		{
			name: "an Ampere GPU with MIG mode off is not published for a MIG pool",
			in:   publish.Input{Look: with(mode(gpu.MIGDisabled, false)), Decisions: decided(mig)},
			want: want{reason: v1alpha1.ReasonMIGModeOff, message: "nvidia-smi -i GPU-0 -mig 1"},
		},
		{
			name: "an Ampere GPU with MIG mode on is published for a MIG pool",
			in:   publish.Input{Look: with(mode(gpu.MIGEnabled, false)), Decisions: decided(mig)},
			want: want{form: ptr(decision(mig)), reason: v1alpha1.ReasonPublished, asDecided: true},
		},
		{
			name: "a board without MIG is not published for a MIG pool",
			in:   publish.Input{Look: with(mode(gpu.MIGUnsupported, false)), Decisions: decided(mig)},
			want: want{reason: v1alpha1.ReasonMIGNotSupported, message: "has no MIG"},
		},
		{
			name: "a GPU with MIG mode on is not published whole",
			in:   publish.Input{Look: with(mode(gpu.MIGEnabled, true)), Decisions: decided()},
			want: want{reason: v1alpha1.ReasonMIGModeOn, message: "nvidia-smi -i GPU-0 -mig 0"},
		},
		{
			name: "nothing is published beside a foreign driver",
			in:   publish.Input{Look: look, Decisions: decided(), Record: recorded(decision()), Foreign: "DRA driver gpu.nvidia.com"},
			want: want{reason: v1alpha1.ReasonForeignDriver, message: "gpu.nvidia.com"},
		},
		{
			name: "what is in use stays published beside a foreign driver, tainted",
			in:   publish.Input{Look: look, Decisions: decided(), Record: recorded(decision()), InUse: used, Foreign: "DRA driver gpu.nvidia.com"},
			want: want{form: ptr(decision(tainted("ForeignDriver"))), reason: v1alpha1.ReasonForeignDriver, message: "gpu.nvidia.com"},
		},
		{
			name: "a GPU that vanished while in use stays published, tainted",
			in:   publish.Input{Look: gpu.Node{DriverVersion: "580"}, Decisions: decided(), Record: recorded(decision()), InUse: used},
			want: want{form: ptr(decision(tainted("GPUMissing"))), reason: v1alpha1.ReasonGPUMissing, message: "does not show"},
		},
		{
			name: "the taint that the manager waits for is the one published of a GPU that vanished",
			in: publish.Input{
				Look: gpu.Node{DriverVersion: "580"}, Decisions: decided(tainted("PoolDeleted")), Record: recorded(decision()), InUse: used,
			},
			want: want{form: ptr(decision(tainted("PoolDeleted"))), reason: v1alpha1.ReasonGPUMissing, message: "does not show"},
		},
		{
			name: "a GPU that vanished unused goes",
			in:   publish.Input{Look: gpu.Node{DriverVersion: "580"}, Decisions: decided(), Record: recorded(decision())},
			want: want{reason: v1alpha1.ReasonGPUMissing, message: "does not show"},
		},
		{
			name: "a decided GPU that was never seen is missing",
			in:   publish.Input{Look: gpu.Node{DriverVersion: "580"}, Decisions: decided()},
			want: want{reason: v1alpha1.ReasonGPUMissing, message: "does not show"},
		},
		{
			name: "without NVML what was published stays as it was, tainted",
			in:   publish.Input{Failed: v1alpha1.ReasonNVMLFailed, Decisions: decided(exclusive), Record: recorded(decision())},
			want: want{form: ptr(decision(tainted("NVMLFailed"))), reason: v1alpha1.ReasonNVMLFailed, message: "DriverAvailable"},
		},
		{
			name: "without NVML nothing new is published",
			in:   publish.Input{Failed: v1alpha1.ReasonNVMLNotFound, Decisions: decided()},
			want: want{reason: v1alpha1.ReasonNVMLNotFound, message: "DriverAvailable"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			outcomes := publish.Plan(tc.in)
			if len(outcomes) != 1 {
				t.Fatalf("%d outcomes, want 1", len(outcomes))
			}
			got := outcomes[0]
			if diff := cmp.Diff(tc.want.form, got.Form); diff != "" {
				t.Errorf("form (-want +got):\n%s", diff)
			}
			if got.Reason != tc.want.reason || got.AsDecided != tc.want.asDecided {
				t.Errorf("reason %q, as decided %v; want %q, %v", got.Reason, got.AsDecided, tc.want.reason, tc.want.asDecided)
			}
			if !strings.Contains(got.Message, tc.want.message) || (tc.want.message == "") != (got.Message == "") {
				t.Errorf("message %q does not say %q", got.Message, tc.want.message)
			}
			if got.Decided != (len(tc.in.Decisions) > 0) {
				t.Errorf("decided is %v", got.Decided)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	at := func(uuid string, minor int) gpu.GPU {
		return seen(func(g *gpu.GPU) { g.UUID, g.Minor = uuid, minor })
	}
	was := func(uuid string, minor int) checkpoint.PublishedGPU {
		return checkpoint.PublishedGPU{Minor: minor, Form: decision(), Facts: checkpoint.FactsOf(at(uuid, minor), "580")}
	}
	for _, tc := range []struct {
		name    string
		look    []gpu.GPU
		record  []checkpoint.PublishedGPU
		inUse   map[string]int
		decided []v1alpha1.GPUDecision
		failed  string
		want    map[string]int
	}{
		{
			name:    "a GPU that was decided about and never seen takes no number",
			look:    []gpu.GPU{at("B", 0), at("C", 1)},
			decided: []v1alpha1.GPUDecision{{UUID: "A"}},
			want:    map[string]int{"A": 0, "B": 0, "C": 1},
		},
		{
			name: "GPUs have NVML's numbers",
			look: []gpu.GPU{at("A", 0), at("B", 1)},
			want: map[string]int{"A": 0, "B": 1},
		},
		{
			name:   "a GPU in use keeps its number though NVML counts otherwise now",
			look:   []gpu.GPU{at("A", 1), at("B", 0)},
			record: []checkpoint.PublishedGPU{was("A", 0), was("B", 1)},
			inUse:  map[string]int{"A": 1},
			want:   map[string]int{"A": 0, "B": 1},
		},
		{
			name:   "GPUs that are not in use take NVML's new numbers",
			look:   []gpu.GPU{at("A", 1), at("B", 0)},
			record: []checkpoint.PublishedGPU{was("A", 0), was("B", 1)},
			want:   map[string]int{"A": 1, "B": 0},
		},
		{
			name:   "a GPU whose number is kept for one that is lost takes a free one",
			look:   []gpu.GPU{at("B", 0), at("C", 1)},
			record: []checkpoint.PublishedGPU{was("A", 0)},
			inUse:  map[string]int{"A": 1},
			want:   map[string]int{"A": 0, "B": 2, "C": 1},
		},
		{
			name:   "without NVML everything keeps its number",
			record: []checkpoint.PublishedGPU{was("A", 5), was("B", 1)},
			failed: v1alpha1.ReasonNVMLFailed,
			want:   map[string]int{"A": 5, "B": 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := map[string]int{}
			for _, o := range publish.Plan(publish.Input{
				Look: gpu.Node{GPUs: tc.look}, Record: checkpoint.Published{GPUs: tc.record}, InUse: tc.inUse, Decisions: tc.decided, Failed: tc.failed,
			}) {
				got[o.Facts.UUID] = o.Minor
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("numbers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	of := func(name string, minor int, change ...func(*v1alpha1.GPUDecision)) checkpoint.PublishedGPU {
		return checkpoint.PublishedGPU{
			Minor: minor, Form: decision(change...), Facts: checkpoint.FactsOf(seen(func(g *gpu.GPU) { g.UUID = name }), "580"),
		}
	}
	for _, tc := range []struct {
		name   string
		record []checkpoint.PublishedGPU
		inUse  map[string]int
		want   []string
	}{
		{
			name:   "GPUs with tenants come before untouched ones of their pool",
			record: []checkpoint.PublishedGPU{of("A", 0), of("B", 1), of("C", 2)},
			inUse:  map[string]int{"B": 3},
			want:   []string{"B", "A", "C"},
		},
		{
			name:   "GPUs that are alike stay in the order they have",
			record: []checkpoint.PublishedGPU{of("C", 2), of("A", 0), of("B", 1)},
			want:   []string{"C", "A", "B"},
		},
		{
			name:   "GPUs given away whole come last, in use or not",
			record: []checkpoint.PublishedGPU{of("A", 0, exclusive), of("B", 1), of("C", 2, exclusive), of("D", 3, mig)},
			inUse:  map[string]int{"C": 1},
			want:   []string{"D", "B", "A", "C"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			packed := publish.Packed(checkpoint.Published{GPUs: tc.record}, tc.inUse)
			var got []string
			for _, g := range packed.GPUs {
				got = append(got, g.Facts.UUID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if again := publish.Packed(packed, tc.inUse); !publish.SameOrder(again, packed) {
				t.Error("packing what is packed changes the order again")
			}
		})
	}
}

func TestRecordKeepsTheOrderOfWhatIsOffered(t *testing.T) {
	outcome := func(name string, minor int, offered bool) publish.Outcome {
		o := publish.Outcome{Minor: minor, Facts: checkpoint.Facts{UUID: name, Minor: minor}}
		if offered {
			o.Form = ptr(decision())
		}
		return o
	}
	now := checkpoint.Published{GPUs: []checkpoint.PublishedGPU{
		{Facts: checkpoint.Facts{UUID: "C"}}, {Facts: checkpoint.Facts{UUID: "A"}}, {Facts: checkpoint.Facts{UUID: "B"}},
	}}
	record := publish.Record([]publish.Outcome{
		outcome("A", 0, true), outcome("B", 1, false), outcome("C", 2, true), outcome("D", 4, true), outcome("E", 3, true),
	}, now)
	var got []string
	for _, g := range record.GPUs {
		got = append(got, g.Facts.UUID)
	}
	if diff := cmp.Diff([]string{"C", "A", "E", "D"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
