// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// board is an H100 with MIG mode on and these instances.
func board(instances ...gpu.Instance) gpu.GPU {
	return gpu.GPU{
		UUID: "GPU-0", Product: "H100", MemoryBytes: 80 << 30, MIGMode: gpu.MIGEnabled, MIGModeSwitchable: true,
		MemorySlices: 8, ComputeSlices: 7, Instances: instances,
		Profiles: []gpu.Profile{
			{Name: "1g.10gb", MemoryBytes: 10 << 30, ComputeSlices: 1, MemorySlices: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7},
			{Name: "3g.40gb", MemoryBytes: 40 << 30, ComputeSlices: 3, MemorySlices: 4, Starts: []int{0, 4}, Max: 2},
		},
	}
}

func there(profile string, start int) gpu.Instance {
	return gpu.Instance{Profile: profile, Start: start, UUID: fmt.Sprintf("MIG-%s-%d", profile, start)}
}

func wants(placements ...gpu.Placement) v1alpha1.GPUDecision {
	d := v1alpha1.GPUDecision{
		UUID: "GPU-0", Pool: "static", Partitioning: v1alpha1.PartitioningMIG, Strategy: v1alpha1.MIGStatic,
		Sharing: v1alpha1.SharingExclusive, MemoryPercent: 100, ComputePercent: 100,
	}
	for _, p := range placements {
		d.Instances = append(d.Instances, v1alpha1.MIGPlacement{Profile: p.Profile, Start: ptr(int32(p.Start))})
	}
	return d
}

func place(profile string, start int) gpu.Placement {
	return gpu.Placement{Profile: profile, Start: start}
}

// offers is one GPU whose instances have been offered.
func offers(form v1alpha1.GPUDecision, placements ...gpu.Placement) checkpoint.Published {
	g := board()
	before := checkpoint.PublishedGPU{Form: form, Facts: checkpoint.FactsOf(g, "580")}
	for _, p := range placements {
		profile, _ := g.Profile(p.Profile)
		before.Instances = append(before.Instances, checkpoint.Standing{
			Placement: checkpoint.Placement{Profile: p.Profile, Start: p.Start, Size: profile.MemorySlices},
			UUID:      there(p.Profile, p.Start).UUID, MemoryBytes: profile.MemoryBytes, Compute: profile.Compute(7),
		})
	}
	return checkpoint.Published{GPUs: []checkpoint.PublishedGPU{before}}
}

func TestStaticLayouts(t *testing.T) {
	small, half := place("1g.10gb", 0), place("3g.40gb", 4)
	both := wants(small, half)
	dynamic := both
	dynamic.Strategy, dynamic.Instances = v1alpha1.MIGDynamic, nil
	off := board()
	off.MIGMode = gpu.MIGDisabled
	ampere := off
	ampere.MIGModeSwitchable, ampere.MIGModePending = false, true
	for _, tc := range []struct {
		name string
		in   publish.Input
		// want are the offered instances with their taints; reason is the GPU's.
		want   []string
		reason string
	}{
		{
			name: "what is there is offered", reason: v1alpha1.ReasonPublished, want: []string{"1g.10gb:0", "3g.40gb:4"},
			in: publish.Input{Look: look(board(there("1g.10gb", 0), there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{both}},
		},
		{
			name: "what is still to be made is not", reason: v1alpha1.ReasonDividing, want: []string{"1g.10gb:0"},
			in: publish.Input{Look: look(board(there("1g.10gb", 0))), Decisions: []v1alpha1.GPUDecision{both}},
		},
		{
			name: "an instance without a compute instance is not", reason: v1alpha1.ReasonDividing, want: []string{"3g.40gb:4"},
			in: publish.Input{Look: look(board(gpu.Instance{Profile: "1g.10gb"}, there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{both}},
		},
		{
			name: "an instance of somebody else is not", reason: v1alpha1.ReasonPublished, want: []string{"3g.40gb:4"},
			in: publish.Input{Look: look(board(there("1g.10gb", 0), there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{wants(half)}},
		},
		{
			name: "what was offered and is gone stays, tainted, until it is made again", reason: v1alpha1.ReasonDividing, want: []string{"1g.10gb:0!Dividing", "3g.40gb:4"},
			in: publish.Input{Look: look(board(there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{both}, Record: offers(both, small, half)},
		},
		{
			name: "after a driver was loaded again everything stays, tainted", reason: v1alpha1.ReasonDividing, want: []string{"1g.10gb:0!Dividing", "3g.40gb:4!Dividing"},
			in: publish.Input{Look: look(off), Decisions: []v1alpha1.GPUDecision{both}, Record: offers(both, small, half)},
		},
		{
			name: "what the layout wants no more is withdrawn", reason: v1alpha1.ReasonPublished, want: []string{"3g.40gb:4"},
			in: publish.Input{Look: look(board(there("1g.10gb", 0), there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{wants(half)}, Record: offers(both, small, half)},
		},
		{
			name: "what the layout wants no more and a claim has stays, tainted", reason: v1alpha1.ReasonPublished, want: []string{"1g.10gb:0!LayoutChanged", "3g.40gb:4"},
			in: publish.Input{
				Look: look(board(there("1g.10gb", 0), there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{wants(half)}, Record: offers(both, small, half),
				InUse: map[string]int{"GPU-0": 1}, Held: map[string][]gpu.Placement{"GPU-0": {small}},
			},
		},
		{
			name: "a decision without instances offers nothing", reason: v1alpha1.ReasonLayoutUndecided, want: []string{},
			in: publish.Input{Look: look(board(there("1g.10gb", 0))), Decisions: []v1alpha1.GPUDecision{wants()}, Record: offers(both, small, half)},
		},
		{
			name: "what stands against the layout is the reason", reason: v1alpha1.ReasonForeignInstances, want: []string{"3g.40gb:4"},
			in: publish.Input{
				Look: look(board(there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{wants(half)},
				Troubles: map[string]publish.Trouble{"GPU-0": {Reason: v1alpha1.ReasonForeignInstances, Message: "somebody's"}},
			},
		},
		{
			name: "a GPU in use keeps its layout when its pool becomes dynamic", reason: v1alpha1.ReasonInUse, want: []string{"1g.10gb:0", "3g.40gb:4"},
			in: publish.Input{
				Look: look(board(there("1g.10gb", 0), there("3g.40gb", 4))), Decisions: []v1alpha1.GPUDecision{dynamic}, Record: offers(both, small, half),
				InUse: map[string]int{"GPU-0": 1}, Held: map[string][]gpu.Placement{"GPU-0": {small}},
			},
		},
		{
			name: "a GPU that has vanished keeps what is in use", reason: v1alpha1.ReasonGPUMissing, want: []string{"1g.10gb:0", "3g.40gb:4"},
			in: publish.Input{
				Decisions: []v1alpha1.GPUDecision{both}, Record: offers(both, small, half),
				InUse: map[string]int{"GPU-0": 1}, Held: map[string][]gpu.Placement{"GPU-0": {small}},
			},
		},
		{
			name: "Ampere without MIG mode is not published", reason: v1alpha1.ReasonMIGModeOff, want: []string{},
			in: publish.Input{Look: look(ampere), Decisions: []v1alpha1.GPUDecision{both}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := publish.Plan(tc.in)[0]
			if o.Reason != tc.reason {
				t.Errorf("reason is %s (%s), want %s", o.Reason, o.Message, tc.reason)
			}
			if asDecided := o.Reason == v1alpha1.ReasonPublished; o.AsDecided != asDecided {
				t.Errorf("AsDecided is %v", o.AsDecided)
			}
			if diff := cmp.Diff(tc.want, names(o)); diff != "" {
				t.Errorf("offered (-want +got):\n%s", diff)
			}
		})
	}
}

func look(gpus ...gpu.GPU) gpu.Node { return gpu.Node{DriverVersion: "580", GPUs: gpus} }

func names(o publish.Outcome) []string {
	list := []string{}
	for _, i := range o.Instances {
		text := fmt.Sprintf("%s:%d", i.Profile, i.Start)
		if i.Taint != "" {
			text += "!" + string(i.Taint)
		}
		list = append(list, text)
	}
	return list
}

// Whatever changes in whatever order, an instance that a claim has is never withdrawn from the record, and never offered to
// others once the layout wants it no more.
func TestAnInstanceThatAClaimHasIsNeverWithdrawn(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // A seeded generator makes the test repeatable.
	layouts := []v1alpha1.GPUDecision{
		wants(place("1g.10gb", 0), place("3g.40gb", 4)), wants(place("3g.40gb", 0), place("3g.40gb", 4)), wants(place("1g.10gb", 6)), wants(),
	}
	whole := v1alpha1.GPUDecision{UUID: "GPU-0", Pool: "static", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingExclusive}
	for round := range 300 {
		var record checkpoint.Published
		held := map[gpu.Placement]bool{}
		for range 30 {
			in := publish.Input{Record: record, Held: map[string][]gpu.Placement{}, InUse: map[string]int{}}
			if random.IntN(8) > 0 {
				in.Decisions = []v1alpha1.GPUDecision{append(slices.Clone(layouts), whole)[random.IntN(len(layouts)+1)]}
			}
			switch random.IntN(10) {
			case 0:
				in.Failed = v1alpha1.ReasonNVMLFailed
			case 1: // it does not show the GPU
			default:
				in.Look = look(board(randomInstances(random)...))
			}
			for p := range held {
				in.Held["GPU-0"] = append(in.Held["GPU-0"], p)
				in.InUse["GPU-0"]++
			}
			record = publish.Record(publish.Plan(in), record)
			for p := range held {
				if g := record.ByUUID("GPU-0"); g == nil || g.At(p) == nil {
					t.Fatalf("round %d: a claim has %v, which is withdrawn by %+v", round, p, in)
				}
			}
			claimsComeAndGo(random, &record, held)
		}
	}
}

func randomInstances(random *rand.Rand) []gpu.Instance {
	all := []gpu.Instance{there("1g.10gb", 0), there("3g.40gb", 0), there("3g.40gb", 4), there("1g.10gb", 6)}
	return slices.DeleteFunc(all, func(gpu.Instance) bool { return random.IntN(3) == 0 })
}

// claimsComeAndGo has claims take what is offered without a taint, and release what they have.
func claimsComeAndGo(random *rand.Rand, record *checkpoint.Published, held map[gpu.Placement]bool) {
	for p := range held {
		if random.IntN(4) == 0 {
			delete(held, p)
		}
	}
	g := record.ByUUID("GPU-0")
	if g == nil || g.Form.Taint != "" {
		return
	}
	for _, i := range g.Instances {
		if i.Taint == "" && random.IntN(3) == 0 {
			held[i.Placement.GPU()] = true
		}
	}
}
