// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/divide"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// seventh is a GPU that has, or is to have, one 1g.10gb at 6.
func seventh(there bool) gpu.GPU {
	g := h100(0)
	g.Profiles = []gpu.Profile{{
		Name: "1g.10gb", MemoryBytes: 10 << 30, ComputeSlices: 1, MemorySlices: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7,
	}}
	if there {
		g.MIGMode = gpu.MIGEnabled
		g.Instances = []gpu.Instance{{Profile: "1g.10gb", Start: 6, Size: 1, GIID: 3, UUID: "MIG-6"}}
	}
	return g
}

func withSeventh(d *v1alpha1.GPUDecision) {
	d.Partitioning, d.Strategy, d.Sharing = v1alpha1.PartitioningMIG, v1alpha1.MIGStatic, v1alpha1.SharingExclusive
	d.Instances = []v1alpha1.MIGPlacement{{Profile: "1g.10gb", Start: ptr.To[int32](6)}}
}

// dividing makes the instances when it is asked to.
type dividing struct{ *rig }

func (d dividing) Divide(context.Context, gpu.Node) (divide.Result, error) {
	d.divides++
	changed := d.look.GPUs[0].MIGMode != gpu.MIGEnabled
	d.look.GPUs = []gpu.GPU{seventh(true)}
	return divide.Result{Changed: changed}, nil
}

func TestALayoutIsMadeBeforeItIsPublished(t *testing.T) {
	r := newRig(t, seventh(false))
	r.agent.Divider = dividing{r}
	r.decide(decided("GPU-0", "mig", withSeventh))
	r.passes(t)
	if r.publishes != 1 {
		t.Errorf("%d publications on the way", r.publishes)
	}
	r.expectDevices(t, "of the layout", "gpu-0-mig-1g10gb-6")
	r.expectCondition(t, "of the layout", "Ready", "True", "Published")
	want := v1alpha1.PublishedForm{Pool: "mig", Partitioning: "MIG", Strategy: "Static", Sharing: "Exclusive"}
	if diff := cmp.Diff(want, r.gpuNode.Status.GPUs[0].Published); diff != "" {
		t.Errorf("published form (-want +got):\n%s", diff)
	}
}

func TestWhatStandsAgainstALayoutIsSaid(t *testing.T) {
	r := newRig(t, seventh(true))
	r.divided.Troubles = map[string]publish.Trouble{"GPU-0": {Reason: v1alpha1.ReasonForeignInstances, Message: "1g.10gb at 0 is used by python (7)"}}
	r.decide(decided("GPU-0", "mig", withSeventh))
	r.passes(t)
	r.expectDevices(t, "that are there", "gpu-0-mig-1g10gb-6")
	r.expectCondition(t, "with trouble", "Ready", "False", "ForeignInstances")
	r.divided.Troubles = nil
	r.passes(t)
	r.expectCondition(t, "without", "Ready", "True", "Published")
}

func TestARepairIsToldForAWhile(t *testing.T) {
	r := newRig(t, seventh(true))
	r.decide(decided("GPU-0", "mig", withSeventh))
	r.divided = divide.Result{Changed: true, Foreign: map[string]string{"GPU-0": "somebody made 1g.10gb at 0"}}
	if _, err := r.agent.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.divided = divide.Result{}
	r.passes(t)
	if g := r.gpuNode.Status.GPUs[0]; g.Reason != v1alpha1.ReasonPublished || !strings.Contains(g.Message, "somebody made 1g.10gb at 0; it was repaired at") {
		t.Errorf("the GPU says %s %q", g.Reason, g.Message)
	}
	r.clock.Step(11 * time.Minute)
	r.passes(t)
	if g := r.gpuNode.Status.GPUs[0]; g.Message != "" {
		t.Errorf("it goes on saying %q", g.Message)
	}
}

func TestForeignInstancesAreAnEventOnce(t *testing.T) {
	r := newRig(t, seventh(true))
	r.decide(decided("GPU-0", "mig", withSeventh))
	r.agent.Repaired(map[string]string{"GPU-0": "somebody destroyed 1g.10gb at 6"})
	held := func(by string) divide.Result {
		return divide.Result{Troubles: map[string]publish.Trouble{"GPU-0": {Reason: v1alpha1.ReasonForeignInstances, Message: "in use by " + by}}}
	}
	for _, step := range []struct {
		name    string
		divided divide.Result
		want    []string
	}{
		{
			name: "repaired before the loop began",
			want: []string{"Warning ForeignInstancesRepaired on node node: gpu-0 (GPU-0): somebody destroyed 1g.10gb at 6; it was repaired"},
		},
		{name: "nothing", divided: divide.Result{}},
		{
			name: "found in use", divided: held("a (1)"),
			want: []string{"Warning ForeignInstances on node node: gpu-0 (GPU-0): in use by a (1)"},
		},
		{name: "in use by others", divided: held("b (2)")},
		{
			name: "repaired", divided: divide.Result{Foreign: map[string]string{"GPU-0": "somebody made 1g.10gb at 0"}},
			want: []string{"Warning ForeignInstancesRepaired on node node: gpu-0 (GPU-0): somebody made 1g.10gb at 0; it was repaired"},
		},
		{
			name: "found in use again", divided: held("a (1)"),
			want: []string{"Warning ForeignInstances on node node: gpu-0 (GPU-0): in use by a (1)"},
		},
		{
			name: "gone by itself",
			want: []string{"Warning ForeignInstancesRepaired on node node: gpu-0 (GPU-0): nobody uses what somebody else made any more; it does not stay"},
		},
	} {
		r.divided, r.ward.told = step.divided, nil
		if _, err := r.agent.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, r.ward.told); diff != "" {
			t.Errorf("events %s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestAnInstanceThatSomebodyUsesKeepsTenantsAway(t *testing.T) {
	r := newRig(t, seventh(true))
	r.decide(decided("GPU-0", "mig", func(d *v1alpha1.GPUDecision) {
		d.Partitioning, d.Strategy, d.Sharing = v1alpha1.PartitioningMIG, v1alpha1.MIGDynamic, v1alpha1.SharingExclusive
	}))
	r.passes(t)
	r.expectCondition(t, "while nobody uses it", "Ready", "True", "Published")
	r.processes = []holders.Process{{GIID: 3, Name: "python (7)"}}
	r.passes(t)
	r.expectCondition(t, "while it is used", "Ready", "False", "ForeignInstances")
	if taints := r.taints(t); len(taints) != 7 || !strings.Contains(taints[0], "ForeignInstances") {
		t.Errorf("the taints are %v", taints)
	}
	if len(r.ward.told) != 1 || !strings.Contains(r.ward.told[0], "1g.10gb at 6 is no claim's and is used by python (7)") {
		t.Errorf("the events are %q", r.ward.told)
	}
	r.ward.told, r.holdersErr = nil, nvml.ErrFailed
	r.processes = nil
	r.passes(t)
	r.expectCondition(t, "while nobody knows", "Ready", "False", "ForeignInstances")
	if len(r.ward.told) != 0 {
		t.Errorf("while nobody knows the events are %q", r.ward.told)
	}
	r.holdersErr = nil
	r.passes(t)
	r.expectCondition(t, "afterwards", "Ready", "True", "Published")
	if len(r.ward.told) != 1 || !strings.Contains(r.ward.told[0], "nobody uses what somebody else made any more") {
		t.Errorf("afterwards the events are %q", r.ward.told)
	}
}

func TestNothingIsDividedWhereSomebodyElseHandsOutGPUs(t *testing.T) {
	r := newRig(t, seventh(true))
	r.node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	r.decide(decided("GPU-0", "mig", withSeventh))
	r.passes(t)
	if r.divides > 0 {
		t.Errorf("Divide was called %d times", r.divides)
	}
}

func TestTheStatusNamesWhoHoldsAGPU(t *testing.T) {
	r := newRig(t, seventh(true))
	r.processes = []holders.Process{
		{PID: 7, GIID: 3, Name: "python (7)"}, {PID: 8, GIID: 3, Name: "train (8)", Tenant: true}, {PID: 9, GIID: -1, Name: "dcgm (9)"},
	}
	r.decide(decided("GPU-0", "mig", withSeventh))
	claims := checkpoint.Claims{Claims: map[string]checkpoint.Claim{"uid": {
		UID: "uid", Namespace: "ns", Name: "claim", State: checkpoint.Prepared, Pods: []checkpoint.Pod{{Name: "trainer", UID: "p"}},
		Results: []checkpoint.Result{{GPU: "GPU-0", Standing: true, Placement: &checkpoint.Placement{Profile: "1g.10gb", Start: 6, Size: 1}}},
	}}}
	if err := r.store.SaveClaims(claims); err != nil {
		t.Fatal(err)
	}
	r.passes(t)
	g := r.gpuNode.Status.GPUs[0]
	if diff := cmp.Diff([]string{"dcgm (9)", "ns/trainer", "python (7)"}, g.HeldBy); diff != "" {
		t.Errorf("holders of the GPU (-want +got):\n%s", diff)
	}
	want := []v1alpha1.MIGInstance{{
		Start: ptr.To[int32](6), Profile: "1g.10gb", UUID: "MIG-6", InUse: ptr.To(true), HeldBy: []string{"ns/trainer", "python (7)"},
	}}
	if diff := cmp.Diff(want, g.Instances); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
}

func TestIdleInstancesWakeTheLoop(t *testing.T) {
	r := newRig(t, seventh(true))
	until := r.clock.Now().Add(7 * time.Second)
	if err := r.store.SaveClaims(checkpoint.Claims{Idle: []checkpoint.Idle{{GPU: "GPU-0", Until: until}}}); err != nil {
		t.Fatal(err)
	}
	r.decide(decided("GPU-0", "mig", withSeventh, func(d *v1alpha1.GPUDecision) {
		d.Strategy, d.Instances, d.KeepIdleSeconds = v1alpha1.MIGDynamic, nil, 60
	}))
	r.passes(t)
	next, err := r.agent.pass(t.Context())
	if err != nil || next != 7*time.Second {
		t.Errorf("the next pass is due in %v (%v), want 7s", next, err)
	}
}

func TestTimeSlices(t *testing.T) {
	slice := func(s v1alpha1.TimeSlice) func(*v1alpha1.GPUDecision) {
		return func(d *v1alpha1.GPUDecision) { d.Sharing, d.TimeSlice = v1alpha1.SharingTimeSlicing, s }
	}
	r := newRig(t, h100(0), h100(1))
	step := func(when string, want []string, decisions ...v1alpha1.GPUDecision) {
		t.Helper()
		r.timeSlices = nil
		r.decide(decisions...)
		r.passes(t)
		if diff := cmp.Diff(want, r.timeSlices); diff != "" {
			t.Errorf("time slices set %s (-want +got):\n%s", when, diff)
		}
	}
	other := decided("GPU-1", "b", slice(""))
	step("where a pool asks, and not where it does not", []string{"GPU-0 Long"}, decided("GPU-0", "a", slice("Long")), other)
	step("again", nil, decided("GPU-0", "a", slice("Long")), other)
	step("when the pool asks for another", []string{"GPU-0 Short"}, decided("GPU-0", "a", slice("Short")), other)
	r.agent.memory = memory{}
	step("by a new agent", []string{"GPU-0 Short"}, decided("GPU-0", "a", slice("Short")), other)
	step("when the mode changes", []string{"GPU-0 Default"}, decided("GPU-0", "a"), other)
	step("afterwards", nil, decided("GPU-0", "a"), other)
}

func TestATimeSliceThatCannotBeSetIsSaid(t *testing.T) {
	r := newRig(t, h100(0))
	r.timeSliceErr = errors.New("nvidia-smi not found")
	r.decide(decided("GPU-0", "a", func(d *v1alpha1.GPUDecision) {
		d.Sharing, d.TimeSlice = v1alpha1.SharingTimeSlicing, v1alpha1.TimeSliceLong
	}))
	for range 3 {
		if _, err := r.agent.pass(t.Context()); err == nil {
			t.Error("the pass does not say so")
		}
	}
	r.expectDevices(t, "all the same", "gpu-0")
	g := r.gpuNode.Status.GPUs[0]
	if g.Reason != v1alpha1.ReasonPublished || !strings.Contains(g.Message, "nvidia-smi not found") {
		t.Errorf("the GPU says %s %q", g.Reason, g.Message)
	}
}

func TestLayoutsComeBackWithoutTheAPIServer(t *testing.T) {
	r := newRig(t, seventh(false))
	back := &comeback{divider: dividing{r}, hardware: r, preparer: r, foreign: r.agent.Repaired, log: logr.Discard()}
	if back.try(t.Context()) {
		t.Error("something was changed, and it does not look again")
	}
	if !back.try(t.Context()) {
		t.Error("nothing is left to do, and it goes on")
	}
	r.lookErr = nvml.ErrNotFound
	if back.try(t.Context()) {
		t.Error("it does not wait for NVML")
	}
}
