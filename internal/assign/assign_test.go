// SPDX-License-Identifier: Apache-2.0

package assign_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/internal/rollouts"
)

const uuid = "GPU-00000000-0000-0000-0000-000000000001"

// now is when everything happens.
var now = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

// day is when a pool was created: a smaller number is an older pool.
func day(n int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC)) }

type poolOption func(*v1alpha1.GPUPool)

func pool(name string, created int, options ...poolOption) v1alpha1.GPUPool {
	p := v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: day(created)}}
	for _, option := range options {
		option(&p)
	}
	return p
}

func deleting(p *v1alpha1.GPUPool) { p.DeletionTimestamp = ptr.To(day(28)) }

func elsewhere(p *v1alpha1.GPUPool) {
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"room": "other"}}
}

func unreadable(p *v1alpha1.GPUPool) {
	p.Spec.NodeSelector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "room", Operator: "in", Values: []string{"here"}}},
	}
}

func otherGPU(p *v1alpha1.GPUPool) { p.Spec.GPUSelector.UUIDs = []string{"GPU-x"} }

func exclusive(p *v1alpha1.GPUPool) { p.Spec.Sharing.Mode = v1alpha1.SharingExclusive }

func mig(p *v1alpha1.GPUPool) {
	p.Spec.Partitioning = v1alpha1.Partitioning{
		Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGDynamic},
	}
}

func static(p *v1alpha1.GPUPool) {
	p.Spec.Partitioning = v1alpha1.Partitioning{Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{
		Strategy: v1alpha1.MIGStatic,
		Layouts:  []v1alpha1.MIGLayout{{Name: "all", Instances: []v1alpha1.MIGCount{{Profile: "1g.10gb", Count: 2}}}},
	}}
}

func excluding(p *v1alpha1.GPUPool) { p.Spec.Excluded = []v1alpha1.ExcludedGPU{{UUID: uuid}} }

func memoryPercent(percent int32) poolOption {
	return func(p *v1alpha1.GPUPool) {
		p.Spec.Overcommit = &v1alpha1.Overcommit{MemoryPercent: percent, ComputePercent: 100}
	}
}

// decision is what a pool makes of the GPU, tainted where a reason is given.
func decision(p v1alpha1.GPUPool, taint ...v1alpha1.TaintReason) *v1alpha1.GPUDecision {
	d := assign.Decision(&p, uuid)
	if len(taint) > 0 {
		d.Taint = taint[0]
	}
	return &d
}

// situation is one GPU on one node.
type situation struct {
	pools     []v1alpha1.GPUPool
	inForce   *v1alpha1.GPUDecision
	allocated bool
	missing   bool // the agent does not report the GPU
	unseen    bool // the agent has not applied the decision in force yet
	hidden    bool // the agent does not publish the GPU
	settled   bool
	// forgotten is what the GPU is published as where no decision is in force.
	forgotten *v1alpha1.GPUDecision
	// undecided: the manager has not decided anything on the node.
	undecided bool
	// terminating: the GPUNode is being deleted.
	terminating bool
}

func (s situation) node() assign.Node {
	n := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "node", Generation: 2},
		Status:     v1alpha1.GPUNodeStatus{ObservedGeneration: 2},
	}
	if s.unseen {
		n.Status.ObservedGeneration = 1
	}
	gpu := v1alpha1.GPUStatus{UUID: uuid, Minor: ptr.To[int32](3), Product: "NVIDIA H100 80GB HBM3"}
	if s.inForce != nil {
		n.Spec = &v1alpha1.GPUNodeSpec{GPUs: []v1alpha1.GPUDecision{*s.inForce}}
		if !s.hidden {
			gpu.Published = v1alpha1.PublishedForm{
				Pool: s.inForce.Pool, Partitioning: s.inForce.Partitioning, Strategy: s.inForce.Strategy,
				Sharing: s.inForce.Sharing, Taint: s.inForce.Taint,
			}
		}
	}
	if s.inForce == nil && !s.undecided {
		n.Spec = &v1alpha1.GPUNodeSpec{}
	}
	if f := s.forgotten; f != nil {
		gpu.Published = v1alpha1.PublishedForm{Pool: f.Pool, Partitioning: f.Partitioning, Strategy: f.Strategy, Sharing: f.Sharing, Taint: f.Taint}
	}
	if s.terminating {
		n.DeletionTimestamp = ptr.To(day(28))
	}
	if !s.missing {
		n.Status.GPUs = []v1alpha1.GPUStatus{gpu}
	}
	node := assign.Node{GPUNode: n, Labels: map[string]string{"room": "here"}}
	if s.allocated {
		node.Allocations = []assign.Allocation{{Device: "gpu-3"}}
	}
	return node
}

// orders are those of the pools' rollouts.
func (s situation) orders(node assign.Node) map[string]assign.Orders {
	orders := map[string]assign.Orders{}
	for i := range s.pools {
		plan := rollouts.Make(rollouts.Input{Pool: &s.pools[i], Nodes: []assign.Node{node}, Now: now})
		orders[s.pools[i].Name] = plan.Orders["node"]
	}
	return orders
}

func (s situation) decide() (*v1alpha1.GPUDecision, bool) {
	node := s.node()
	age := assign.TaintUnseen
	switch {
	case s.settled:
		age = assign.TaintSettled
	case assign.TaintPublished(node.GPUNode, uuid):
		age = assign.TaintSettling
	}
	result := assign.Decide(node, s.pools, map[string]assign.TaintAge{uuid: age}, s.orders(node), now)
	if len(result.Decisions) == 0 {
		return nil, len(result.Settling) > 0
	}
	return &result.Decisions[0], len(result.Settling) > 0
}

func TestAnOrderOfAnOlderSpecIsVoid(t *testing.T) {
	p := pool("p", 1, static)
	s := situation{pools: []v1alpha1.GPUPool{p}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged)}
	node := s.node()
	orders := s.orders(node)
	order := orders["p"][uuid]
	order.Step, order.Target = rollout.StepApply, []gpu.Placement{{Profile: "1g.10gb", Start: 6}}
	for name, tc := range map[string]struct {
		generation int64
		want       v1alpha1.MIGStrategy
	}{
		"of this spec": {generation: 0, want: v1alpha1.MIGStatic},
		"of another":   {generation: 1, want: ""},
	} {
		order.Generation = tc.generation
		got := assign.Decide(node, s.pools, map[string]assign.TaintAge{uuid: assign.TaintSettled}, map[string]assign.Orders{"p": {uuid: order}, "other": {uuid: {Step: rollout.StepRelease}}}, now)
		if got.Decisions[0].Strategy != tc.want {
			t.Errorf("an order %s: want strategy %q, got %q", name, tc.want, got.Decisions[0].Strategy)
		}
	}
}

func TestDecide(t *testing.T) {
	old, young := pool("old", 1), pool("young", 2)
	tests := []struct {
		name string
		situation
		want     *v1alpha1.GPUDecision
		settling bool
	}{
		{
			name:      "a GPU that no pool selects gets no decision",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, elsewhere)}},
		},
		{
			name:      "a new GPU goes to the pool that selects it",
			situation: situation{pools: []v1alpha1.GPUPool{young}},
			want:      decision(young),
		},
		{
			name:      "a new GPU that two pools select goes to the older one",
			situation: situation{pools: []v1alpha1.GPUPool{young, old}},
			want:      decision(old),
		},
		{
			name:      "of two pools of the same second the name that sorts first has the GPU",
			situation: situation{pools: []v1alpha1.GPUPool{pool("b", 1), pool("a", 1)}},
			want:      decision(pool("a", 1)),
		},
		{
			name:      "a pool that is being deleted gets no new GPU",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, deleting)}},
		},
		{
			name:      "an incumbent keeps a GPU with tenants although an older pool selects it too",
			situation: situation{pools: []v1alpha1.GPUPool{old, young}, inForce: decision(young), allocated: true},
			want:      decision(young),
		},
		{
			name:      "an incumbent without tenants is tainted for the older pool",
			situation: situation{pools: []v1alpha1.GPUPool{old, young}, inForce: decision(young)},
			want:      decision(young, v1alpha1.TaintNotSelected),
		},
		{
			name: "a tenant that came before the taint was seen makes the incumbent keep the GPU",
			situation: situation{
				pools: []v1alpha1.GPUPool{old, young}, inForce: decision(young, v1alpha1.TaintNotSelected), allocated: true, settled: true,
			},
			want: decision(young),
		},
		{
			name: "the older pool has the GPU after the taint has settled",
			situation: situation{
				pools: []v1alpha1.GPUPool{old, young}, inForce: decision(young, v1alpha1.TaintNotSelected), settled: true,
			},
			want: decision(old),
		},
		{
			name:      "a new ratio is in force at once, tenants or not",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, memoryPercent(150))}, inForce: decision(pool("p", 1)), allocated: true},
			want:      decision(pool("p", 1, memoryPercent(150))),
		},
		{
			name:      "another sharing mode taints first",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, exclusive)}, inForce: decision(pool("p", 1))},
			want:      decision(pool("p", 1), v1alpha1.TaintPoolChanged),
		},
		{
			name: "another partitioning waits for tenants however long the taint stands",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged),
				allocated: true, settled: true,
			},
			want: decision(pool("p", 1), v1alpha1.TaintPoolChanged),
		},
		{
			name: "another partitioning waits until the agent has published the taint",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged),
				unseen: true,
			},
			want: decision(pool("p", 1), v1alpha1.TaintPoolChanged),
		},
		{
			name: "a published taint without tenants waits for the settle time only",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged),
			},
			want:     decision(pool("p", 1), v1alpha1.TaintPoolChanged),
			settling: true,
		},
		{
			name: "a settled taint stays settled while the agent is behind with other GPUs",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged),
				unseen: true, settled: true,
			},
			want: decision(pool("p", 1, mig), v1alpha1.TaintPoolChanged),
		},
		{
			name: "another partitioning is in force after the taint has settled",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged), settled: true,
			},
			want: decision(pool("p", 1, mig), v1alpha1.TaintPoolChanged),
		},
		{
			name: "a GPU that is not published changes its form without a published taint",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged),
				hidden: true, settled: true,
			},
			want: decision(pool("p", 1, mig), v1alpha1.TaintPoolChanged),
		},
		{
			name: "a new form takes tenants once the agent offers it",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1, mig), v1alpha1.TaintPoolChanged), settled: true,
			},
			want: decision(pool("p", 1, mig)),
		},
		{
			name: "a new form that the agent does not offer yet stays tainted",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, inForce: decision(pool("p", 1, mig), v1alpha1.TaintPoolChanged), hidden: true, settled: true,
			},
			want: decision(pool("p", 1, mig), v1alpha1.TaintPoolChanged),
		},
		{
			name:      "a GPU that its pool excludes is tainted at once",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, excluding)}, inForce: decision(pool("p", 1)), allocated: true},
			want:      decision(pool("p", 1), v1alpha1.TaintExcluded),
		},
		{
			name:      "a new GPU that its pool excludes comes tainted",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, excluding)}},
			want:      decision(pool("p", 1), v1alpha1.TaintExcluded),
		},
		{
			name: "an excluded GPU keeps its form",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, excluding, mig)}, inForce: decision(pool("p", 1), v1alpha1.TaintExcluded), settled: true,
			},
			want: decision(pool("p", 1), v1alpha1.TaintExcluded),
		},
		{
			name:      "a GPU that is not excluded any more takes tenants again",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1)}, inForce: decision(pool("p", 1), v1alpha1.TaintExcluded)},
			want:      decision(pool("p", 1)),
		},
		{
			name:      "a pool that is changed back takes the taint away",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolChanged)},
			want:      decision(pool("p", 1)),
		},
		{
			name:      "a deleted pool's GPU is tainted",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, deleting)}, inForce: decision(pool("p", 1)), allocated: true},
			want:      decision(pool("p", 1), v1alpha1.TaintPoolDeleted),
		},
		{
			name:      "a decision of a pool that does not exist any more counts as deleted",
			situation: situation{inForce: decision(pool("gone", 1))},
			want:      decision(pool("gone", 1), v1alpha1.TaintPoolDeleted),
		},
		{
			name: "a deleted pool's GPU is dropped after the taint has settled",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, deleting)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolDeleted), settled: true,
			},
		},
		{
			name: "a deleted pool's GPU goes to the next pool",
			situation: situation{
				pools:   []v1alpha1.GPUPool{pool("p", 1, deleting), young},
				inForce: decision(pool("p", 1), v1alpha1.TaintPoolDeleted), settled: true,
			},
			want: decision(young),
		},
		{
			name:      "a GPU that the pool does not select any more is tainted",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, elsewhere)}, inForce: decision(pool("p", 1)), allocated: true},
			want:      decision(pool("p", 1), v1alpha1.TaintNotSelected),
		},
		{
			name:      "a pool whose node selector cannot be read gets no new GPU",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, unreadable)}},
		},
		{
			name:      "a pool whose node selector cannot be read keeps its GPU without a taint",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, unreadable)}, inForce: decision(pool("p", 1))},
			want:      decision(pool("p", 1)),
		},
		{
			name:      "a pool whose node selector cannot be read keeps its GPU from a younger pool",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, unreadable), young}, inForce: decision(pool("p", 1))},
			want:      decision(pool("p", 1)),
		},
		{
			name:      "a pool whose node selector cannot be read does not get another pool's GPU",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, unreadable), young}, inForce: decision(young)},
			want:      decision(young),
		},
		{
			name:      "the GPU selector counts although the node selector cannot be read",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, unreadable, otherGPU)}, inForce: decision(pool("p", 1))},
			want:      decision(pool("p", 1), v1alpha1.TaintNotSelected),
		},
		{
			name:      "a deleted pool drains although its node selector cannot be read",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, unreadable, deleting)}, inForce: decision(pool("p", 1))},
			want:      decision(pool("p", 1), v1alpha1.TaintPoolDeleted),
		},
		{
			name:      "a GPU whose decision is lost stays with the pool that it is published and used for",
			situation: situation{pools: []v1alpha1.GPUPool{old, young}, forgotten: decision(young), allocated: true},
			want:      decision(young),
		},
		{
			name:      "a GPU whose decision is lost gets the ratios of its pool",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, memoryPercent(200))}, forgotten: decision(pool("p", 1)), allocated: true},
			want:      decision(pool("p", 1, memoryPercent(200))),
		},
		{
			name:      "a GPU whose decision is lost keeps its form, tainted, while the pool wants another one",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, mig)}, forgotten: decision(pool("p", 1, exclusive)), allocated: true},
			want:      decision(pool("p", 1, exclusive), v1alpha1.TaintPoolChanged),
		},
		{
			name:      "a GPU whose decision is lost is tainted where its pool does not select it any more",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, exclusive, elsewhere), old}, forgotten: decision(pool("p", 1, exclusive)), allocated: true},
			want:      decision(pool("p", 1, exclusive), v1alpha1.TaintNotSelected),
		},
		{
			name:      "a GPU whose decision is lost is tainted where its pool does not exist any more",
			situation: situation{pools: []v1alpha1.GPUPool{old}, forgotten: decision(pool("gone", 1, exclusive)), allocated: true},
			want:      decision(pool("gone", 1, exclusive), v1alpha1.TaintPoolDeleted),
		},
		{
			name:      "a GPU that was released and is not withdrawn yet is free",
			situation: situation{pools: []v1alpha1.GPUPool{old}, forgotten: decision(pool("gone", 1, exclusive), v1alpha1.TaintPoolDeleted)},
			want:      decision(old),
		},
		{
			name:      "on a node without any decision a free GPU too stays with the pool that it is published for, tainted for the older one",
			situation: situation{pools: []v1alpha1.GPUPool{old, pool("young", 2, exclusive)}, forgotten: decision(pool("young", 2, exclusive)), undecided: true},
			want:      decision(pool("young", 2, exclusive), v1alpha1.TaintNotSelected),
		},
		{
			name:      "a GPUNode that is being deleted takes no new GPU",
			situation: situation{pools: []v1alpha1.GPUPool{old}, terminating: true},
		},
		{
			name:      "a GPUNode that is being deleted keeps what it holds",
			situation: situation{pools: []v1alpha1.GPUPool{old}, inForce: decision(old), allocated: true, terminating: true},
			want:      decision(old),
		},
		{
			name:      "a GPUNode that is being deleted drains for a deleted pool",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1, deleting)}, inForce: decision(pool("p", 1)), allocated: true, terminating: true},
			want:      decision(pool("p", 1), v1alpha1.TaintPoolDeleted),
		},
		{
			name:      "a GPU that is missing from the report stays with its pool",
			situation: situation{pools: []v1alpha1.GPUPool{pool("p", 1)}, inForce: decision(pool("p", 1)), missing: true},
			want:      decision(pool("p", 1)),
		},
		{
			name: "a missing GPU of a deleted pool waits for a claim that may be on it",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, deleting)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolDeleted),
				missing: true, allocated: true, settled: true,
			},
			want: decision(pool("p", 1), v1alpha1.TaintPoolDeleted),
		},
		{
			name: "a missing GPU of a deleted pool is dropped when no claim can be on it",
			situation: situation{
				pools: []v1alpha1.GPUPool{pool("p", 1, deleting)}, inForce: decision(pool("p", 1), v1alpha1.TaintPoolDeleted),
				missing: true, settled: true,
			},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, settling := tc.decide()
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(v1alpha1.GPUDecision{}, "TaintedSince")); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if settling != tc.settling {
				t.Errorf("settling: want %v, got %v", tc.settling, settling)
			}
		})
	}
}
