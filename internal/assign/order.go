// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
)

// Orders are what the rollout of a pool has decided for the GPUs of a node, by UUID.
type Orders map[string]Order

// Order is what a pool's rollout has decided for one GPU. It was made from what was known of all GPUs of the pool a moment
// ago; what cannot be taken back is held against what is known of the node.
type Order struct {
	// Generation is that of the pool's spec which the order carries out. Under another one it is void.
	Generation int64
	// Step is what is to be done.
	Step rollout.Step
	// Target are the instances that the GPU is to have; with StepApply only, and only with a layout.
	Target []gpu.Placement
	// Taint is the reason of the taint that the change needs.
	Taint v1alpha1.TaintReason
}

// OfRollout says whether a taint belongs to a rollout, which takes it away when the change is over.
func OfRollout(reason v1alpha1.TaintReason) bool {
	return reason == v1alpha1.TaintPoolChanged || reason == v1alpha1.TaintLayoutChanged
}

// stay is the decision for a GPU that stays in its pool, and whether only the settle time is being waited for.
func (c contest) stay(pool *v1alpha1.GPUPool, age TaintAge) (*v1alpha1.GPUDecision, bool) {
	wanted := Decision(pool, c.uuid)
	kept := *c.inForce
	if SameForm(kept, wanted) {
		wanted.Instances, wanted.Taint, wanted.TaintedSince = kept.Instances, kept.Taint, kept.TaintedSince
		kept = wanted
	}
	if _, excluded := Excludes(pool, c.uuid); excluded {
		return c.tainted(kept, v1alpha1.TaintExcluded), false
	}
	if !OfRollout(kept.Taint) {
		kept.Taint, kept.TaintedSince = "", nil
	}
	order := c.orders[pool.Name][c.uuid]
	if order.Generation != pool.Generation {
		return &kept, false
	}
	switch order.Step {
	case rollout.StepBegin, rollout.StepDrain, rollout.StepEvict, rollout.StepSettle, rollout.StepReady:
		return c.change(kept, order), false
	case rollout.StepApply:
		return c.apply(kept, wanted, order, age)
	case rollout.StepRelease:
		kept.Taint, kept.TaintedSince = "", nil
		return &kept, false
	default:
		return &kept, false
	}
}

// change is a decision with the taint of a change. A GPU that is made ready without one, because nothing is taken away,
// goes on without.
func (c contest) change(d v1alpha1.GPUDecision, order Order) *v1alpha1.GPUDecision {
	if d.Taint == "" && order.Step == rollout.StepReady {
		return &d
	}
	return c.tainted(d, order.Taint)
}

// apply puts the wanted form in the place of the one in force where nothing is in the way. The taint stays until the
// agent has made it so.
func (c contest) apply(kept, wanted v1alpha1.GPUDecision, order Order, age TaintAge) (*v1alpha1.GPUDecision, bool) {
	next := wanted
	next.Taint, next.TaintedSince = kept.Taint, kept.TaintedSince
	next.Instances = nil
	if StrategyOf(wanted) == v1alpha1.MIGStatic {
		next.Instances = instancesOf(order.Target)
	}
	switch c.hindrance(kept, next, age) {
	case hindranceNone:
		return &next, false
	case hindranceTime:
		return &kept, true
	default:
		return &kept, false
	}
}

// hindrance is what keeps a decision from being replaced.
type hindrance int

const (
	hindranceNone hindrance = iota
	// hindranceTime: an allocation may be on its way.
	hindranceTime
	// hindranceUse: something that would go is in use, or offered without a taint.
	hindranceUse
)

func (c contest) hindrance(kept, next v1alpha1.GPUDecision, age TaintAge) hindrance {
	reform := !SameForm(kept, next)
	todo := layout.Diff(Instances(c.node, c.gpu), Placements(next.Instances))
	takes := reform || len(todo.Destroy) > 0
	offered := reform || len(kept.Instances) > 0 || c.gpu != nil && c.gpu.Published != (v1alpha1.PublishedForm{})
	switch {
	case !takes:
		return hindranceNone
	case reform && c.held || len(todo.MustDrain) > 0:
		return hindranceUse
	case !offered && kept.Taint == "" || age == TaintSettled:
		return hindranceNone
	case age == TaintSettling:
		return hindranceTime
	default:
		return hindranceUse
	}
}

// Instances are the MIG instances of a GPU. One that is allocated is in use, and one that is allocated and not there yet
// is as good as there.
func Instances(node Node, reported *v1alpha1.GPUStatus) []layout.Instance {
	if reported == nil {
		return nil
	}
	var instances []layout.Instance
	for _, i := range reported.Instances {
		instances = append(instances, layout.Instance{
			Placement: Placements([]v1alpha1.MIGPlacement{{Start: i.Start, Profile: i.Profile}})[0],
			InUse:     i.InUse != nil && *i.InUse || len(i.HeldBy) > 0,
		})
	}
	for _, a := range ByGPU(node)[reported.UUID] {
		placement, ok := PlacementOf(node.GPUNode, reported, a)
		if !ok {
			continue
		}
		i := slices.IndexFunc(instances, func(x layout.Instance) bool { return x.Placement == placement })
		if i < 0 {
			instances = append(instances, layout.Instance{Placement: placement, InUse: true})
			continue
		}
		instances[i].InUse = true
	}
	return instances
}
