// SPDX-License-Identifier: Apache-2.0

package divide_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func h100(n int) fakenode.Boards { return fakenode.Boards{Board: "h100-80gb", Count: n} }

func TestALayoutIsMadeAndChanged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		board  string
		mig    bool
		first  []string
		second []string
	}{
		{name: "from nothing", board: "h100-80gb", second: []string{"3g.40gb:4", "1g.10gb:0", "1g.10gb:1"}},
		{name: "seven sevenths become the whole", board: "h100-80gb", first: []string{"1g.10gb:0", "1g.10gb:1", "1g.10gb:2", "1g.10gb:3", "1g.10gb:4", "1g.10gb:5", "1g.10gb:6"}, second: []string{"7g.80gb:0"}},
		{name: "one half is divided, the other stays", board: "h100-80gb", first: []string{"3g.40gb:0", "3g.40gb:4"}, second: []string{"3g.40gb:0", "1g.10gb:4", "1g.10gb:5", "1g.10gb:6"}},
		{name: "another profile at the same start", board: "h100-80gb", first: []string{"1g.10gb:0"}, second: []string{"2g.20gb:0"}},
		{name: "Ampere with MIG mode on", board: "a100-80gb", mig: true, first: []string{"4g.40gb:0"}, second: []string{"4g.40gb:0", "3g.40gb:4"}},
		{name: "the instances with media engines", board: "h100-80gb", first: []string{"1g.10gb+me:6"}, second: []string{"1g.10gb:6", "1g.20gb:0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, fakenode.Boards{Board: tc.board, Count: 1, MIG: tc.mig})
			if len(tc.first) > 0 {
				r.want(t, static(t, tc.first...))
				r.settled(t)
				r.expect(t, "of the first layout", 0, tc.first...)
			}
			before := r.look(t).GPUs[0].Instances
			r.want(t, static(t, tc.second...))
			r.settled(t)
			r.expect(t, "of the second layout", 0, tc.second...)
			after := r.look(t).GPUs[0].Instances
			for _, i := range before {
				if slices.Contains(tc.second, nameOf(i)) && !slices.Contains(after, i) {
					t.Errorf("%s is wanted in both layouts, but was made anew", nameOf(i))
				}
			}
			if diff := cmp.Diff(r.instances(t, 0), r.made(t, 0)); diff != "" {
				t.Errorf("what is recorded as made (-there +recorded):\n%s", diff)
			}
		})
	}
}

func nameOf(i gpu.Instance) string {
	return i.Profile + ":" + string(rune('0'+i.Start))
}

func TestWhatIsInUseIsNotTouched(t *testing.T) {
	for _, tc := range []struct {
		name   string
		use    func(*testing.T, *rig)
		wanted []string
		reason string
		words  []string
	}{
		{
			name: "a claim has an instance that has to go", use: func(t *testing.T, r *rig) { t.Helper(); r.claim(t, 0, "3g.40gb:4") },
			wanted: []string{"3g.40gb:0", "1g.10gb:4"}, reason: v1alpha1.ReasonInUse, words: []string{"3g.40gb at 4", "ns/trainer"},
		},
		{
			name: "a process has an instance that has to go", use: func(t *testing.T, r *rig) { t.Helper(); r.process(t, "3g.40gb:4") },
			wanted: []string{"3g.40gb:0", "1g.10gb:4"}, reason: v1alpha1.ReasonInUse, words: []string{"3g.40gb at 4", pid()},
		},
		{
			name: "only one of two that have to go is used, and both stay", use: func(t *testing.T, r *rig) { t.Helper(); r.process(t, "3g.40gb:4") },
			wanted: []string{"7g.80gb:0"}, reason: v1alpha1.ReasonInUse, words: []string{"3g.40gb at 4"},
		},
		{
			name: "what has to go is free beside one that is used and stays", use: func(t *testing.T, r *rig) { t.Helper(); r.process(t, "3g.40gb:0") },
			wanted: []string{"3g.40gb:0", "1g.10gb:4"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, h100(1))
			r.want(t, static(t, "3g.40gb:0", "3g.40gb:4"))
			r.settled(t)
			tc.use(t, r)
			r.want(t, static(t, tc.wanted...))
			result := r.divide(t)
			trouble := result.Troubles[r.look(t).GPUs[0].UUID]
			if trouble.Reason != tc.reason {
				t.Errorf("trouble is %+v, want %s", trouble, tc.reason)
			}
			for _, word := range tc.words {
				if !strings.Contains(trouble.Message, word) {
					t.Errorf("%q does not say %q", trouble.Message, word)
				}
			}
			if tc.reason == "" {
				r.expect(t, "after the change", 0, tc.wanted...)
				return
			}
			r.expect(t, "while one is used", 0, "3g.40gb:0", "3g.40gb:4")
			if err := r.store.SaveClaims(noClaims()); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(trouble.Message, pid()) {
				r.noProcess(t)
			}
			r.settled(t)
			r.expect(t, "when it is released", 0, tc.wanted...)
		})
	}
}

func TestInstancesOfOthers(t *testing.T) {
	layout := []string{"3g.40gb:4"}
	t.Run("one that nobody uses is destroyed", func(t *testing.T) {
		r := newRig(t, h100(1))
		r.want(t, static(t, layout...))
		r.settled(t)
		r.foreign(t, 0, "1g.10gb:0")
		result := r.divide(t)
		if got := result.Foreign[r.look(t).GPUs[0].UUID]; got != "somebody made 1g.10gb at 0" {
			t.Errorf("it says %q", got)
		}
		r.settled(t)
		r.expect(t, "after the repair", 0, layout...)
	})
	t.Run("one that is used is reported, and destroyed afterwards", func(t *testing.T) {
		r := newRig(t, h100(1))
		r.want(t, static(t, layout...))
		r.settled(t)
		r.foreign(t, 0, "1g.10gb:0")
		r.process(t, "1g.10gb:0")
		trouble := r.divide(t).Troubles[r.look(t).GPUs[0].UUID]
		if trouble.Reason != v1alpha1.ReasonForeignInstances || !strings.Contains(trouble.Message, pid()) {
			t.Errorf("trouble is %+v", trouble)
		}
		r.expect(t, "while it is used", 0, "3g.40gb:4", "1g.10gb:0")
		r.noProcess(t)
		r.settled(t)
		r.expect(t, "afterwards", 0, layout...)
	})
	t.Run("one that is what the layout wants is taken over", func(t *testing.T) {
		r := newRig(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true})
		r.foreign(t, 0, layout[0])
		before := r.look(t).GPUs[0].Instances
		r.want(t, static(t, layout...))
		r.settled(t)
		if diff := cmp.Diff(before, r.look(t).GPUs[0].Instances); diff != "" {
			t.Errorf("instances (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(layout, r.made(t, 0)); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
	t.Run("one of the layout that somebody destroyed is made again", func(t *testing.T) {
		r := newRig(t, h100(1))
		r.want(t, static(t, "1g.10gb:0", "3g.40gb:4"))
		r.settled(t)
		r.offerAll(t)
		g := r.look(t).GPUs[0]
		if err := r.door.DestroyInstance(t.Context(), g.UUID, g.Instances[0].GIID); err != nil {
			t.Fatal(err)
		}
		if got := r.divide(t).Foreign[g.UUID]; got != "somebody destroyed 1g.10gb at 0" {
			t.Errorf("it says %q", got)
		}
		r.settled(t)
		r.expect(t, "after the repair", 0, "1g.10gb:0", "3g.40gb:4")
	})
}

func TestFailuresLeaveNothingHalf(t *testing.T) {
	for _, tc := range []struct {
		name, call, answer string
		reason             string
		left               []string
	}{
		{name: "the compute instance cannot be made", call: "nvmlGpuInstanceCreateComputeInstance", answer: "NVML_ERROR_UNKNOWN", reason: v1alpha1.ReasonDivideFailed, left: []string{}},
		{name: "there is no room", call: "nvmlDeviceCreateGpuInstanceWithPlacement", answer: "NVML_ERROR_INSUFFICIENT_RESOURCES", reason: v1alpha1.ReasonDivideFailed, left: []string{}},
		{name: "it is not known who holds the GPU", call: "nvmlDeviceGetComputeRunningProcesses_v3", answer: "NVML_ERROR_UNKNOWN", reason: v1alpha1.ReasonDivideFailed, left: []string{}},
		{name: "MIG mode is in use", call: "nvmlDeviceSetMigMode", answer: "NVML_ERROR_IN_USE", reason: v1alpha1.ReasonInUse, left: []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, h100(1))
			r.want(t, static(t, "3g.40gb:4", "1g.10gb:0"))
			r.node.Fault(t, tc.call, tc.answer, 0)
			result := r.divide(t)
			if got := result.Troubles[r.look(t).GPUs[0].UUID].Reason; got != tc.reason {
				t.Errorf("troubles are %v, want %s", result.Troubles, tc.reason)
			}
			r.expect(t, "after the failure", 0, tc.left...)
			r.settled(t)
			r.expect(t, "at the next try", 0, "3g.40gb:4", "1g.10gb:0")
		})
	}
}

func TestAnInstanceWithoutItsComputeInstanceIsCompleted(t *testing.T) {
	r := newRig(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true})
	if _, err := r.door.CreateGPUInstance(t.Context(), r.look(t).GPUs[0].UUID, at(t, "3g.40gb:4")); err != nil {
		t.Fatal(err)
	}
	r.expect(t, "before", 0, "3g.40gb:4!")
	r.want(t, static(t, "3g.40gb:4"))
	r.settled(t)
	r.expect(t, "after", 0, "3g.40gb:4")
}

func TestALayoutThatTheBoardCannotHoldTouchesNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		wanted []string
		word   string
	}{
		{name: "an unknown profile", wanted: []string{"3g.40gb:4", "2g.24gb:0"}, word: "2g.24gb"},
		{name: "instances that overlap", wanted: []string{"3g.40gb:0", "2g.20gb:2"}, word: "cannot have all at once"},
		{name: "a start that the profile has not", wanted: []string{"3g.40gb:2"}, word: "only at [0 4]"},
		{name: "more than there is room for", wanted: []string{"4g.40gb:0", "3g.40gb:4", "1g.10gb:3"}, word: "cannot be divided"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, h100(1))
			r.want(t, static(t, "3g.40gb:4", "1g.10gb:0"))
			r.settled(t)
			r.want(t, static(t, tc.wanted...))
			result := r.divide(t)
			trouble := result.Troubles[r.look(t).GPUs[0].UUID]
			if result.Changed || trouble.Reason != v1alpha1.ReasonDivideFailed || !strings.Contains(trouble.Message, tc.word) {
				t.Errorf("result is %+v", result)
			}
			r.expect(t, "afterwards", 0, "3g.40gb:4", "1g.10gb:0")
		})
	}
	t.Run("no layout at all", func(t *testing.T) {
		r := newRig(t, h100(1))
		r.want(t, static(t, "3g.40gb:4"))
		r.settled(t)
		r.want(t, static(t))
		if result := r.divide(t); result.Changed || len(result.Troubles) > 0 {
			t.Errorf("result is %+v", result)
		}
		r.expect(t, "afterwards", 0, "3g.40gb:4")
	})
}

func TestAmpereIsNeverSwitched(t *testing.T) {
	r := newRig(t, fakenode.Boards{Board: "a100-80gb", Count: 1})
	r.want(t, static(t, "3g.40gb:4"))
	if result := r.divide(t); result.Changed {
		t.Errorf("result is %+v", result)
	}
	if mode := r.node.Show(t).GPUs[0].MIGMode; mode.Current || mode.Pending {
		t.Errorf("MIG mode is %+v", mode)
	}
}

func TestLayoutsComeBackAfterABoot(t *testing.T) {
	r := newRig(t, h100(2), fakenode.Boards{Board: "a100-80gb", Count: 1, MIG: true})
	forms := []v1alpha1.GPUDecision{static(t, "3g.40gb:4", "1g.10gb:0"), static(t, "7g.80gb:0"), static(t, "4g.40gb:0")}
	r.want(t, forms...)
	r.settled(t)
	r.node.CLI(t, "reboot")
	r.expect(t, "after the boot", 0)
	r.divider.BootID = "next"
	r.settled(t)
	r.expect(t, "afterwards", 0, "3g.40gb:4", "1g.10gb:0")
	r.expect(t, "afterwards", 1, "7g.80gb:0")
	r.expect(t, "afterwards", 2, "4g.40gb:0")
}

func TestAGPUThatLeavesGetsItsInstancesDestroyed(t *testing.T) {
	whole := v1alpha1.GPUDecision{Pool: "whole", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingExclusive}
	for _, tc := range []struct {
		name  string
		forms []v1alpha1.GPUDecision
	}{
		{name: "no pool holds it"},
		{name: "its pool gives it whole", forms: []v1alpha1.GPUDecision{whole}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, h100(1))
			r.want(t, static(t, "3g.40gb:4", "1g.10gb:0"))
			r.settled(t)
			r.process(t, "3g.40gb:4")
			r.want(t, tc.forms...)
			r.divide(t)
			r.expect(t, "while one is used", 0, "3g.40gb:4")
			r.noProcess(t)
			r.settled(t)
			r.expect(t, "afterwards", 0)
			if made := r.made(t, 0); len(made) > 0 {
				t.Errorf("still recorded: %v", made)
			}
		})
	}
}

func TestManyGPUsOfSeveralKindsSideBySide(t *testing.T) {
	r := newRig(t, h100(9), fakenode.Boards{Board: "a100-80gb", Count: 2, MIG: true}, fakenode.Boards{Board: "a30-24gb", Count: 1, MIG: true})
	var forms []v1alpha1.GPUDecision
	for range 8 {
		forms = append(forms, static(t, "3g.40gb:4", "1g.10gb:0"))
	}
	shared := v1alpha1.GPUDecision{Pool: "whole", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware}
	forms = append(forms, shared, static(t, "4g.40gb:0"), static(t, "7g.80gb:0"), static(t, "2g.12gb:0", "1g.6gb:3"))
	r.want(t, forms...)
	r.settled(t)
	for minor := range 8 {
		r.expect(t, "of the first eight", minor, "3g.40gb:4", "1g.10gb:0")
	}
	r.expect(t, "of the shared one", 8)
	if r.node.Show(t).GPUs[8].MIGMode.Current {
		t.Error("MIG mode of the shared GPU is on")
	}
	r.expect(t, "of an A100", 9, "4g.40gb:0")
	r.expect(t, "of an A100", 10, "7g.80gb:0")
	r.expect(t, "of the A30", 11, "2g.12gb:0", "1g.6gb:3")
}
