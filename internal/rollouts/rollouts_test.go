// SPDX-License-Identifier: Apache-2.0

package rollouts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/internal/rollouts"
	"github.com/sluice-gpu/sluice/test/builders"
)

var now = time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)

// places are the placements of a decision.
func places(profile string, starts ...int) []v1alpha1.MIGPlacement {
	var list []v1alpha1.MIGPlacement
	for _, start := range starts {
		list = append(list, v1alpha1.MIGPlacement{Profile: profile, Start: ptr.To(int32(start))})
	}
	return list
}

// decided is what a pool has decided for a GPU of node n.
func decided(pool *v1alpha1.GPUPool, minor int, instances []v1alpha1.MIGPlacement, options ...func(*v1alpha1.GPUDecision)) v1alpha1.GPUDecision {
	d := assign.Decision(pool, builders.UUID("n", minor))
	d.Instances = instances
	for _, option := range options {
		option(&d)
	}
	return d
}

// tainted is a decision that has been tainted for a while.
func tainted(reason v1alpha1.TaintReason, ago time.Duration) func(*v1alpha1.GPUDecision) {
	return func(d *v1alpha1.GPUDecision) { d.Taint, d.TaintedSince = reason, ptr.To(metav1.NewTime(now.Add(-ago))) }
}

// node is node n, on which pods hold devices.
func node(n *builders.GPUNode, devices ...string) assign.Node {
	known := assign.Node{GPUNode: n.Obj(), Labels: map[string]string{builders.PoolNodeLabel: "p"}}
	for _, device := range devices {
		known.Allocations = append(known.Allocations, assign.Allocation{
			Claim: types.NamespacedName{Namespace: "team", Name: device}, Pods: []string{"on-" + device}, UIDs: []types.UID{"7"}, Device: device,
		})
	}
	return known
}

// inState changes what a node's agent reports of its first GPU.
func inState(n assign.Node, change func(*v1alpha1.GPUStatus)) assign.Node {
	change(&n.GPUNode.Status.GPUs[0])
	return n
}

func TestMake(t *testing.T) {
	halves := builders.MakePool("p").Static("3g.40gb", 2).Obj()
	sevenths := builders.MakePool("p").Static("1g.10gb", 7).Obj()
	evicting := builders.MakePool("p").Static("1g.10gb", 7).Rollout("1", v1alpha1.DrainEvict, 600).Obj()
	whole := builders.MakePool("p").Obj()
	both := places("3g.40gb", 0, 4)
	layoutChanged := tainted(v1alpha1.TaintLayoutChanged, time.Hour)
	const held = "gpu-0-mig-3g40gb-4"
	tests := []struct {
		name    string
		pool    *v1alpha1.GPUPool
		nodes   []assign.Node
		begun   map[rollouts.Key]time.Time
		steps   []rollout.Step // of the first node's GPUs
		taint   v1alpha1.TaintReason
		target  []gpu.Placement
		evicts  []string
		reason  string
		refused string
		says    []string
	}{
		{
			name: "a new GPU gets its layout at once", pool: halves, steps: []rollout.Step{rollout.StepApply},
			nodes:  []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, nil)))},
			target: []gpu.Placement{{Profile: "3g.40gb", Start: 0}, {Profile: "3g.40gb", Start: 4}}, reason: v1alpha1.ReasonProgressing,
		},
		{
			name: "GPUs with their layout are done", pool: halves, steps: []rollout.Step{rollout.StepDone, rollout.StepDone},
			nodes:  []assign.Node{node(builders.MakeGPUNode("n", 2).Decided(decided(halves, 0, both), decided(halves, 1, both)))},
			reason: v1alpha1.ReasonRolledOut,
		},
		{
			name: "a new layout begins with one GPU", pool: sevenths, steps: []rollout.Step{rollout.StepBegin, rollout.StepWait},
			nodes: []assign.Node{node(builders.MakeGPUNode("n", 2).Decided(decided(halves, 0, both), decided(halves, 1, both)))},
			taint: v1alpha1.TaintLayoutChanged, reason: v1alpha1.ReasonProgressing,
		},
		{
			name: "what has just been ordered to begin counts", pool: sevenths, steps: []rollout.Step{rollout.StepWait, rollout.StepSettle},
			nodes: []assign.Node{node(builders.MakeGPUNode("n", 2).Decided(decided(halves, 0, both), decided(halves, 1, both)))},
			begun: map[rollouts.Key]time.Time{{Node: "n", UUID: builders.UUID("n", 1)}: now}, reason: v1alpha1.ReasonProgressing,
		},
		{
			name: "a pod that holds an instance is waited for", pool: sevenths, steps: []rollout.Step{rollout.StepDrain},
			nodes: []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both, layoutChanged)), held)},
			taint: v1alpha1.TaintLayoutChanged, reason: v1alpha1.ReasonBlocked, says: []string{"3g.40gb at 4 is held by team/on-" + held},
		},
		{
			name: "it is evicted when its time is over", pool: evicting, steps: []rollout.Step{rollout.StepEvict},
			nodes:  []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both, layoutChanged)), held)},
			evicts: []string{"team/on-" + held}, reason: v1alpha1.ReasonBlocked,
		},
		{
			name: "not before", pool: evicting, steps: []rollout.Step{rollout.StepDrain},
			nodes:  []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both, tainted(v1alpha1.TaintLayoutChanged, time.Minute))), held)},
			reason: v1alpha1.ReasonBlocked,
		},
		{
			name: "a foreign process is named", pool: sevenths, steps: []rollout.Step{rollout.StepDrain},
			nodes: []assign.Node{inState(node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both, layoutChanged))), func(g *v1alpha1.GPUStatus) {
				g.Instances[0].HeldBy = []string{"dcgm (7)"}
			})},
			reason: v1alpha1.ReasonBlocked, says: []string{"3g.40gb at 0 is held by dcgm (7)"},
		},
		{
			name: "an empty GPU whose taint stands is divided", pool: sevenths, steps: []rollout.Step{rollout.StepApply},
			nodes: []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both, layoutChanged)))},
			target: []gpu.Placement{
				{Profile: "1g.10gb", Start: 0}, {Profile: "1g.10gb", Start: 1}, {Profile: "1g.10gb", Start: 2}, {Profile: "1g.10gb", Start: 3},
				{Profile: "1g.10gb", Start: 4}, {Profile: "1g.10gb", Start: 5}, {Profile: "1g.10gb", Start: 6},
			},
			reason: v1alpha1.ReasonProgressing,
		},
		{
			name: "another form is another reason", pool: whole, steps: []rollout.Step{rollout.StepBegin},
			nodes: []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both)), held)},
			taint: v1alpha1.TaintPoolChanged, reason: v1alpha1.ReasonProgressing, says: []string{"become None, Software"},
		},
		{
			name: "a layout that the board cannot hold is refused with what fits", pool: builders.MakePool("p").Static("3g.40gb", 3).Obj(),
			nodes: []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both)))},
			steps: []rollout.Step{rollout.StepRefused}, reason: v1alpha1.ReasonRolledOut, refused: v1alpha1.ReasonLayoutImpossible,
			says: []string{"what fits: 2 × 3g.40gb"},
		},
		{
			name: "a GPU without a layout keeps what it has", steps: []rollout.Step{rollout.StepRefused},
			pool: func() *v1alpha1.GPUPool {
				p := halves.DeepCopy()
				p.Spec.Partitioning.MIG.Layouts[0].Products = []string{"NVIDIA A30"}
				return p
			}(),
			nodes:  []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both)))},
			reason: v1alpha1.ReasonRolledOut, refused: v1alpha1.ReasonNoLayout, says: []string{"has no layout"},
		},
		{
			name: "what the agent cannot do is a failure", pool: halves, steps: []rollout.Step{rollout.StepApplying},
			nodes: []assign.Node{inState(node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both, layoutChanged))), func(g *v1alpha1.GPUStatus) {
				g.Instances, g.Reason, g.Message = nil, v1alpha1.ReasonDivideFailed, "insufficient resources"
			})},
			reason: v1alpha1.ReasonChangeFailed, says: []string{"insufficient resources"},
		},
		{
			name: "a lost GPU is away", pool: sevenths, steps: []rollout.Step{rollout.StepAway},
			nodes: []assign.Node{inState(node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both))), func(g *v1alpha1.GPUStatus) {
				g.Health = v1alpha1.GPUHealth{State: v1alpha1.HealthLost, Reason: v1alpha1.HealthReasonOffBus}
			})},
			reason: v1alpha1.ReasonRolledOut, says: []string{"1 away"},
		},
		{
			name: "an excluded GPU is away, and who holds it is evicted", steps: []rollout.Step{rollout.StepAway},
			pool:   builders.MakePool("p").Rollout("1", v1alpha1.DrainEvict, 600).Excluded(builders.UUID("n", 0)).Obj(),
			nodes:  []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(whole, 0, nil, tainted(v1alpha1.TaintExcluded, time.Hour))), "gpu-0")},
			evicts: []string{"team/on-gpu-0"}, reason: v1alpha1.ReasonRolledOut,
		},
		{
			name: "a pool that is being deleted changes nothing", reason: v1alpha1.ReasonRolledOut,
			pool: func() *v1alpha1.GPUPool {
				p := sevenths.DeepCopy()
				p.DeletionTimestamp = ptr.To(metav1.NewTime(now))
				return p
			}(),
			nodes: []assign.Node{node(builders.MakeGPUNode("n", 1).Decided(decided(halves, 0, both)))},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			plan := rollouts.Make(rollouts.Input{Pool: tc.pool, Nodes: tc.nodes, Begun: tc.begun, Now: now})
			var steps []rollout.Step
			for minor := range tc.steps {
				steps = append(steps, plan.Orders["n"][builders.UUID("n", minor)].Step)
			}
			if diff := cmp.Diff(tc.steps, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			first := plan.Orders["n"][builders.UUID("n", 0)]
			if tc.taint != "" && first.Taint != tc.taint {
				t.Errorf("taint: want %s, got %s", tc.taint, first.Taint)
			}
			if diff := cmp.Diff(tc.target, first.Target, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("target (-want +got):\n%s", diff)
			}
			var evicts []string
			for _, e := range plan.Evictions {
				evicts = append(evicts, e.Name)
			}
			if diff := cmp.Diff(tc.evicts, evicts); diff != "" {
				t.Errorf("evictions (-want +got):\n%s", diff)
			}
			if tc.refused == "" {
				tc.refused = v1alpha1.ReasonLayoutsPossible
			}
			if plan.Reason != tc.reason || plan.RefusedReason != tc.refused {
				t.Errorf("want %s and %s, got %s and %s: %s", tc.reason, tc.refused, plan.Reason, plan.RefusedReason, plan.Message)
			}
			for _, want := range tc.says {
				if !strings.Contains(plan.Message, want) {
					t.Errorf("want %q in %q", want, plan.Message)
				}
			}
		})
	}
}

// TestAScheduleDrainsBeforeItsTime lets a night's layout come: GPUs drain for it before, and change when it begins.
func TestAScheduleDrainsBeforeItsTime(t *testing.T) {
	pool := builders.MakePool("p").Static("3g.40gb", 2).Obj()
	pool.Spec.TimeZone = "UTC"
	pool.Spec.Schedules = []v1alpha1.Schedule{{
		Name: "night", Start: "14:10", End: "20:00", LeadSeconds: ptr.To[int32](600),
		Override: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{
			Layouts: []v1alpha1.MIGLayout{{Name: "small", Instances: []v1alpha1.MIGCount{{Profile: "1g.10gb", Count: 7}}}},
		}}},
	}}
	both := places("3g.40gb", 0, 4)
	n := builders.MakeGPUNode("n", 1).Decided(decided(pool, 0, both))
	at := func(when time.Time) (rollout.Step, time.Time) {
		plan := rollouts.Make(rollouts.Input{Pool: pool, Nodes: []assign.Node{node(n)}, Now: when})
		return plan.Orders["n"][builders.UUID("n", 0)].Step, plan.Again
	}
	if step, again := at(now.Add(-time.Hour)); step != rollout.StepDone || !again.Equal(now) {
		t.Errorf("an hour before: want Done until %s, got %s until %s", now, step, again)
	}
	if step, again := at(now); step != rollout.StepBegin || !again.Equal(now.Add(10*time.Minute)) {
		t.Errorf("ten minutes before: want Begin, got %s until %s", step, again)
	}
	n = builders.MakeGPUNode("n", 1).Decided(decided(pool, 0, both, tainted(v1alpha1.TaintLayoutChanged, 0)))
	if step, _ := at(now.Add(5 * time.Minute)); step != rollout.StepReady {
		t.Errorf("drained too early: want Ready, got %s", step)
	}
	if step, _ := at(now.Add(10 * time.Minute)); step != rollout.StepApply {
		t.Errorf("at its time: want Apply, got %s", step)
	}
}
