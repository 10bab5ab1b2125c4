// SPDX-License-Identifier: Apache-2.0

package poolstatus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/poolstatus"
	"github.com/sluice-gpu/sluice/internal/rollouts"
	"github.com/sluice-gpu/sluice/test/builders"
)

// h100s is node n with GPUs that a pool has decided, on which a pod of team holds each of the devices.
func h100s(pool *v1alpha1.GPUPool, gpus int, change func(*v1alpha1.GPUDecision), devices ...string) assign.Node {
	var decisions []v1alpha1.GPUDecision
	for minor := range gpus {
		d := assign.Decision(pool, builders.UUID("n", minor))
		if change != nil {
			change(&d)
		}
		decisions = append(decisions, d)
	}
	node := assign.Node{
		GPUNode: builders.MakeGPUNode("n", gpus).Decided(decisions...).Obj(), Labels: map[string]string{builders.PoolNodeLabel: pool.Name},
	}
	for _, device := range devices {
		node.Allocations = append(node.Allocations, assign.Allocation{
			Claim: types.NamespacedName{Namespace: "team", Name: device}, Pods: []string{"pod"}, Device: device,
		})
	}
	return node
}

func excluded(d *v1alpha1.GPUDecision) { d.Taint = v1alpha1.TaintExcluded }

func halves(d *v1alpha1.GPUDecision) {
	d.Instances = []v1alpha1.MIGPlacement{{Profile: "3g.40gb", Start: ptr.To[int32](0)}, {Profile: "3g.40gb", Start: ptr.To[int32](4)}}
}

func sick(node assign.Node, minor int, state v1alpha1.HealthState, reason string) assign.Node {
	node.GPUNode.Status.GPUs[minor].Health = v1alpha1.GPUHealth{State: state, Reason: reason, Message: "look at it"}
	return node
}

func TestConditionsOfChange(t *testing.T) {
	shared := builders.MakePool("p").Obj()
	static := builders.MakePool("p").Static("3g.40gb", 2).Obj()
	twice := builders.MakePool("p").Obj()
	twice.Spec.TimeZone = "UTC"
	for _, name := range []string{"a", "b"} {
		twice.Spec.Schedules = append(twice.Spec.Schedules, v1alpha1.Schedule{
			Name: name, Start: "22:00", End: "06:00",
			Override: v1alpha1.ScheduleOverride{Overcommit: v1alpha1.OvercommitOverride{MemoryPercent: 150}},
		})
	}
	idle := rollouts.Plan{Reason: v1alpha1.ReasonRolledOut, RefusedReason: v1alpha1.ReasonLayoutsPossible}
	tests := []struct {
		name      string
		pool      *v1alpha1.GPUPool
		nodes     []assign.Node
		plan      rollouts.Plan
		condition string
		status    metav1.ConditionStatus
		reason    string
		says      []string
	}{
		{
			name: "nothing is refused", pool: shared, plan: idle,
			condition: v1alpha1.PoolLayoutInvalid, status: metav1.ConditionFalse, reason: v1alpha1.ReasonLayoutsPossible,
		},
		{
			name: "what is refused is told, a few of it", pool: shared,
			plan:      rollouts.Plan{Refused: []string{"1", "2", "3", "4", "5", "6", "7"}, RefusedReason: v1alpha1.ReasonLayoutImpossible},
			condition: v1alpha1.PoolLayoutInvalid, status: metav1.ConditionTrue, reason: v1alpha1.ReasonLayoutImpossible,
			says: []string{"1; 2; 3; 4; 5; and 2 more"},
		},
		{
			name: "nothing changes", pool: shared, plan: idle,
			condition: v1alpha1.PoolRollingOut, status: metav1.ConditionFalse, reason: v1alpha1.ReasonRolledOut, says: []string{"every GPU has the form"},
		},
		{
			name: "a rollout says how far it is", pool: shared, plan: rollouts.Plan{Reason: v1alpha1.ReasonBlocked, Message: "held by team/pod"},
			condition: v1alpha1.PoolRollingOut, status: metav1.ConditionTrue, reason: v1alpha1.ReasonBlocked, says: []string{"held by team/pod"},
		},
		{
			name: "no schedule is in another's way", pool: shared, plan: idle,
			condition: v1alpha1.PoolScheduleConflict, status: metav1.ConditionFalse, reason: v1alpha1.ReasonNoScheduleConflict,
		},
		{
			name: "two schedules overlap", pool: twice, plan: idle,
			condition: v1alpha1.PoolScheduleConflict, status: metav1.ConditionTrue, reason: v1alpha1.ReasonSchedulesOverlap,
			says: []string{"a and b overlap"},
		},
		{
			name: "who holds an excluded GPU is told", pool: shared, plan: idle, nodes: []assign.Node{h100s(shared, 2, excluded, "gpu-0")},
			condition: v1alpha1.PoolExcluding, status: metav1.ConditionTrue, reason: v1alpha1.ReasonTenantsRemain,
			says: []string{"2 GPUs excluded, still held by team/pod"},
		},
		{
			name: "an excluded GPU that nobody holds is told too", pool: shared, plan: idle, nodes: []assign.Node{h100s(shared, 1, excluded)},
			condition: v1alpha1.PoolExcluding, status: metav1.ConditionTrue, reason: v1alpha1.ReasonGPUsExcluded, says: []string{"1 GPU excluded"},
		},
		{
			name: "a UUID that no GPU of the pool has is told", pool: builders.MakePool("p").Excluded(builders.UUID("n", 0), "GPU-slip").Obj(), plan: idle,
			nodes:     []assign.Node{h100s(shared, 1, excluded)},
			condition: v1alpha1.PoolExcluding, status: metav1.ConditionTrue, reason: v1alpha1.ReasonGPUsExcluded,
			says: []string{"1 GPU excluded, and nobody holds them; the pool has no GPU GPU-slip"},
		},
		{
			name: "also where it is the only one", pool: builders.MakePool("p").Excluded("GPU-slip").Obj(), plan: idle, nodes: []assign.Node{h100s(shared, 1, nil)},
			condition: v1alpha1.PoolExcluding, status: metav1.ConditionFalse, reason: v1alpha1.ReasonNothingExcluded,
			says: []string{"the pool has no GPU GPU-slip"},
		},
		{
			name: "an excluded GPU is not drained from the pool", pool: shared, plan: idle, nodes: []assign.Node{h100s(shared, 1, excluded, "gpu-0")},
			condition: v1alpha1.PoolDraining, status: metav1.ConditionFalse, reason: v1alpha1.ReasonNothingToDrain,
		},
		{
			name: "a GPU that gets another layout keeps what can stay, so it is not drained", pool: static, plan: idle,
			nodes: []assign.Node{h100s(static, 1, func(d *v1alpha1.GPUDecision) {
				halves(d)
				d.Taint = v1alpha1.TaintLayoutChanged
			}, "gpu-0-mig-3g40gb-4")},
			condition: v1alpha1.PoolDraining, status: metav1.ConditionFalse, reason: v1alpha1.ReasonNothingToDrain,
		},
		{
			name: "it is not ready all the same", pool: static, plan: idle,
			nodes:     []assign.Node{h100s(static, 1, func(d *v1alpha1.GPUDecision) { d.Taint = v1alpha1.TaintLayoutChanged })},
			condition: v1alpha1.PoolReady, status: metav1.ConditionFalse, reason: v1alpha1.ReasonGPUsNotPublished, says: []string{"RollingOut"},
		},
		{
			name: "sick GPUs are told, the lost ones apart", pool: shared, plan: idle,
			nodes: []assign.Node{sick(sick(h100s(shared, 3, nil), 0, v1alpha1.HealthLost, v1alpha1.HealthReasonOffBus),
				2, v1alpha1.HealthSuspect, v1alpha1.HealthReasonXID)},
			condition: v1alpha1.PoolUnhealthy, status: metav1.ConditionTrue, reason: v1alpha1.ReasonGPUsUnhealthy,
			says: []string{"1 GPU suspect, 1 lost", "gpu-0 of node n: OffBus (look at it)", "gpu-2 of node n: XID"},
		},
		{
			name: "well GPUs are told", pool: shared, plan: idle, nodes: []assign.Node{sick(h100s(shared, 1, nil), 0, v1alpha1.HealthHealthy, "Healthy")},
			condition: v1alpha1.PoolUnhealthy, status: metav1.ConditionFalse, reason: v1alpha1.ReasonAllHealthy,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := meta.FindStatusCondition(compute(poolstatus.Input{Pool: tc.pool, Nodes: tc.nodes, Plan: tc.plan}).Status.Conditions, tc.condition)
			if got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("want %s %s, got %s %s: %s", tc.status, tc.reason, got.Status, got.Reason, got.Message)
			}
			for _, want := range tc.says {
				if !strings.Contains(got.Message, want) {
					t.Errorf("want %q in %q", want, got.Message)
				}
			}
		})
	}
}

func TestALayoutIsCountedByItsInstances(t *testing.T) {
	pool := builders.MakePool("p").Static("3g.40gb", 2).Obj()
	got := compute(poolstatus.Input{Pool: pool, Nodes: []assign.Node{h100s(pool, 1, halves, "gpu-0-mig-3g40gb-4")}}).Status
	if got.Memory.Published.Value() != 2*39936<<20 || got.Memory.Allocated.Value() != 39936<<20 {
		t.Errorf("want 2 × and 1 × 39936Mi, got %s published and %s allocated", got.Memory.Published, got.Memory.Allocated)
	}
}

func TestRepackingIsReported(t *testing.T) {
	pool := builders.MakePool("p").MIG().Obj()
	got := compute(poolstatus.Input{Pool: pool, Nodes: []assign.Node{
		h100s(pool, 2, nil, "gpu-0-mig-1g10gb-0", "gpu-0-mig-1g10gb-5", "gpu-1-mig-1g10gb-6"),
	}}).Status.Repacking
	want := []v1alpha1.RepackingGain{{Profile: "3g.40gb", Now: ptr.To[int32](1), AfterDrain: ptr.To[int32](2)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("repacking (-want +got):\n%s", diff)
	}
	if got := compute(poolstatus.Input{Pool: pool, Nodes: []assign.Node{h100s(pool, 1, nil)}}).Status.Repacking; got != nil {
		t.Errorf("an empty GPU gains nothing, got %v", got)
	}
}

func TestAScheduleIsReported(t *testing.T) {
	pool := builders.MakePool("p").Obj()
	pool.Spec.TimeZone = "UTC"
	pool.Spec.Schedules = []v1alpha1.Schedule{{
		Name: "night", Start: "22:00", End: "06:00",
		Override: v1alpha1.ScheduleOverride{Overcommit: v1alpha1.OvercommitOverride{MemoryPercent: 150}},
	}}
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	got := compute(poolstatus.Input{Pool: pool, Now: noon})
	if s := got.Status.Schedule; s.Active != "" || s.Next != "night" || !got.Again.Equal(noon.Add(10*time.Hour)) {
		t.Errorf("want night at 22:00, got %+v, again at %s", s, got.Again)
	}
}
