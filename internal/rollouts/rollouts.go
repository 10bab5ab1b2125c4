// SPDX-License-Identifier: Apache-2.0

// Package rollouts plans how the GPUs of a pool come into the form that the pool wants: it makes the facts of package
// rollout out of what is known of nodes and claims, and orders for the nodes out of its verdicts.
package rollouts

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

// Key names a GPU of the cluster.
type Key struct{ Node, UUID string }

// Input is everything that a pool's plan is made from.
type Input struct {
	// Pool is the pool as it is written.
	Pool *v1alpha1.GPUPool
	// Nodes are all nodes that have an agent.
	Nodes []assign.Node
	// Begun are changes that were ordered to begin and that the decisions in force do not show yet, with the time.
	Begun map[Key]time.Time
	// Jitter is the time over which the nodes of a pool follow a schedule.
	Jitter time.Duration
	// Now is the time.
	Now time.Time
}

// Eviction is a pod that is to be evicted from a GPU.
type Eviction struct {
	rollout.Holder
	Node, UUID string
	// Reason is the taint's.
	Reason v1alpha1.TaintReason
}

// Plan is what is to be done with the GPUs of a pool, and what is to be said about it.
type Plan struct {
	// Generation is that of the pool's spec which the plan carries out.
	Generation int64
	// Orders are by node.
	Orders map[string]assign.Orders
	// Evictions are pods whose time is over.
	Evictions []Eviction
	// Counts and Message sum the rollout up.
	Counts  v1alpha1.PoolRollout
	Message string
	// Reason is that of condition RollingOut.
	Reason string
	// Refused are the sentences about GPUs that have no layout or cannot hold it, RefusedReason that of condition LayoutInvalid.
	Refused       []string
	RefusedReason string
	// Again is when to plan again although nothing has changed; zero: never.
	Again time.Time
}

// Make plans a pool's rollout. A pool that is being deleted changes nothing any more.
func Make(in Input) Plan {
	plan := Plan{
		Generation: in.Pool.Generation, Orders: map[string]assign.Orders{},
		Reason: v1alpha1.ReasonRolledOut, RefusedReason: v1alpha1.ReasonLayoutsPossible,
	}
	if !in.Pool.DeletionTimestamp.IsZero() {
		return plan
	}
	g := gatherer{in: in, table: timetable.Of(in.Pool, in.Jitter), rules: map[*v1alpha1.GPUPool][]layout.Rule{}}
	if selector, err := assign.NodeSelector(in.Pool); err == nil {
		g.selector = selector
	}
	var candidates []candidate
	for _, node := range in.Nodes {
		candidates = append(candidates, g.onNode(node)...)
	}
	facts := make([]rollout.GPU, len(candidates))
	for i, c := range candidates {
		facts[i] = c.fact
	}
	policy := rollout.Policy{
		MaxUnavailable: in.Pool.MaxUnavailable(len(facts)),
		Evict:          in.Pool.Drain() == v1alpha1.DrainEvict,
		Grace:          in.Pool.GracePeriod(),
	}
	result := rollout.Decide(facts, policy, in.Now)
	for i, c := range candidates {
		plan.add(c, result.Verdicts[i])
		plan.drainExcluded(c, policy, in.Now)
	}
	plan.sumUp(result)
	return plan
}

// add orders what a verdict says.
func (p *Plan) add(c candidate, v rollout.Verdict) {
	if p.Orders[c.fact.Node] == nil {
		p.Orders[c.fact.Node] = assign.Orders{}
	}
	p.Orders[c.fact.Node][c.fact.UUID] = assign.Order{
		Generation: p.Generation, Step: v.Step, Target: v.Target, Taint: c.taint,
	}
	p.Again = timetable.Earlier(timetable.Earlier(p.Again, c.again), v.Again)
	for _, h := range v.Evict {
		p.Evictions = append(p.Evictions, Eviction{h, c.fact.Node, c.fact.UUID, c.taint})
	}
	switch {
	case v.Step == rollout.StepRefused || c.fact.Problem != "":
		p.refuse(c, v)
	case v.Step == rollout.StepApplying && c.fact.Failure != "":
		p.Reason = v1alpha1.ReasonChangeFailed
	case p.Reason == v1alpha1.ReasonChangeFailed:
	case v.Step == rollout.StepDrain || v.Step == rollout.StepEvict:
		p.Reason = v1alpha1.ReasonBlocked
	}
}

func (p *Plan) refuse(c candidate, v rollout.Verdict) {
	if v.Step == rollout.StepAway {
		return
	}
	if p.RefusedReason != v1alpha1.ReasonLayoutImpossible {
		p.RefusedReason = v1alpha1.ReasonLayoutImpossible
		if c.noLayout {
			p.RefusedReason = v1alpha1.ReasonNoLayout
		}
	}
	p.Refused = append(p.Refused, v.Message)
}

// drainExcluded evicts who holds an excluded GPU, as any other who is in the way.
func (p *Plan) drainExcluded(c candidate, policy rollout.Policy, now time.Time) {
	if c.excluded == nil || c.excluded.Taint != v1alpha1.TaintExcluded || c.excluded.TaintedSince == nil || !policy.Evict {
		return
	}
	if end := c.excluded.TaintedSince.Add(policy.Grace); now.Before(end) {
		p.Again = timetable.Earlier(p.Again, end)
		return
	}
	for _, h := range c.fact.Holders {
		if h.Evictable {
			p.Evictions = append(p.Evictions, Eviction{h, c.fact.Node, c.fact.UUID, v1alpha1.TaintExcluded})
		}
	}
}

func (p *Plan) sumUp(r rollout.Result) {
	count := func(n int) *int32 { m := int32(n); return &m }
	p.Counts = v1alpha1.PoolRollout{
		Done: count(r.Done), Changing: count(r.Changing), Waiting: count(r.Waiting), Refused: count(r.Refused), Away: count(r.Away),
	}
	p.Message = r.Message
	if p.Reason == v1alpha1.ReasonRolledOut && r.Changing+r.Waiting > 0 {
		p.Reason = v1alpha1.ReasonProgressing
	}
	slices.Sort(p.Refused)
	p.Refused = slices.Compact(p.Refused)
	slices.SortStableFunc(p.Evictions, func(a, b Eviction) int { return strings.Compare(a.Name, b.Name) })
}
