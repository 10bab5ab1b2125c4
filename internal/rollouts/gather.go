// SPDX-License-Identifier: Apache-2.0

package rollouts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

// candidate is a GPU of the pool with what the rollout says about it.
type candidate struct {
	fact     rollout.GPU
	taint    v1alpha1.TaintReason
	noLayout bool
	excluded *v1alpha1.GPUDecision
	again    time.Time
}

// gatherer looks at the nodes of one pool.
type gatherer struct {
	in    Input
	table timetable.Timetable
	// selector is the pool's nodeSelector; nil where it cannot be read.
	selector labels.Selector
	rules    map[*v1alpha1.GPUPool][]layout.Rule
}

// onNode are a node's GPUs that stay in the pool.
func (g *gatherer) onNode(node assign.Node) []candidate {
	if !g.keepsNode(node) {
		return nil
	}
	var found []candidate
	moment := g.table.At(node.GPUNode.Name, g.in.Now)
	inForce := assign.InForce(node)
	for _, uuid := range slices.Sorted(maps.Keys(inForce)) {
		d := inForce[uuid]
		reported := find(node.GPUNode, uuid)
		if d.Pool != g.in.Pool.Name || !assign.SelectsGPU(g.in.Pool, uuid, reported) {
			continue
		}
		c := g.candidate(node, reported, d, moment)
		c.again = moment.Again
		found = append(found, c)
	}
	return found
}

// keepsNode says whether the pool selects a node. One whose nodeSelector cannot be read keeps what it has.
func (g *gatherer) keepsNode(node assign.Node) bool {
	return g.selector == nil || g.selector.Matches(labels.Set(node.Labels))
}

func (g *gatherer) candidate(
	node assign.Node, reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision, moment timetable.Moment,
) candidate {
	c := candidate{fact: rollout.GPU{
		Node: node.GPUNode.Name, UUID: d.UUID,
		Decided:  assign.Placements(d.Instances),
		Settled:  assign.TaintStands(node.GPUNode, d.UUID),
		Draining: g.draining(node.GPUNode.Name, d),
	}}
	reason, excluded := assign.Excludes(g.in.Pool, d.UUID)
	if excluded {
		c.excluded = d
		c.fact.Away = "is excluded"
		if reason != "" {
			c.fact.Away += ": " + reason
		}
	}
	if reported == nil {
		c.fact.Away = "is not seen by its node's agent"
		return c
	}
	if reported.Health.State == v1alpha1.HealthLost {
		c.fact.Away = "is lost: " + reported.Health.Reason
	}
	c.fact.Minor = ptr.Deref(reported.Minor, 0)
	c.fact.Holders = holders(node, reported)
	c.fact.Instances = assign.Instances(node, reported)
	c.fact.Held = len(c.fact.Holders) > 0 || ptr.Deref(reported.Tenants, 0) > 0 ||
		slices.ContainsFunc(c.fact.Instances, func(i layout.Instance) bool { return i.InUse })
	c.fact.Offered = reported.Published != (v1alpha1.PublishedForm{}) || len(d.Instances) > 0
	c.fact.Formed = formed(reported, d)
	c.fact.Failure = failure(reported)
	g.aim(&c, node, reported, d, moment)
	return c
}

// draining is since when the GPU takes no new tenants for the change, as decided or as just ordered.
func (g *gatherer) draining(node string, d *v1alpha1.GPUDecision) time.Time {
	switch {
	case assign.OfRollout(d.Taint) && d.TaintedSince.IsZero():
		return g.in.Now
	case assign.OfRollout(d.Taint):
		return d.TaintedSince.Time
	default:
		return g.in.Begun[Key{node, d.UUID}]
	}
}

// aim fills in what the pool wants of the GPU: what it is to be next where that comes soon, else what it is to be now.
func (g *gatherer) aim(c *candidate, node assign.Node, reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision, moment timetable.Moment) {
	pool := moment.Now
	if moment.Next != nil {
		pool, c.fact.NotBefore = moment.Next, moment.NotBefore
	}
	wanted := assign.Decision(pool, d.UUID)
	c.fact.Form = assign.Describe(wanted)
	c.fact.Reform = !assign.SameForm(*d, wanted)
	c.taint = v1alpha1.TaintLayoutChanged
	if c.fact.Reform {
		c.taint = v1alpha1.TaintPoolChanged
	}
	if assign.StrategyOf(wanted) != v1alpha1.MIGStatic {
		c.fact.Whole = true
		return
	}
	c.fact.Board = assign.Board(node.GPUNode, reported.Product)
	if reported.MIGMode != v1alpha1.MIGUnsupported && len(c.fact.Board.Profiles) == 0 {
		c.fact.Away = "cannot be planned: its node's agent has not reported what its board offers"
		return
	}
	rule, err := layout.Choose(g.rulesOf(pool), reported.Product, c.fact.Minor)
	if err != nil {
		c.fact.Problem, c.noLayout = err.Error(), true
		return
	}
	c.fact.Wanted = rule.Layout
}

// rulesOf are a pool's layouts as rules.
func (g *gatherer) rulesOf(pool *v1alpha1.GPUPool) []layout.Rule {
	if rules, known := g.rules[pool]; known {
		return rules
	}
	var rules []layout.Rule
	for _, l := range pool.Spec.Partitioning.MIG.Layouts {
		rule := layout.Rule{Name: l.Name, Products: l.Products, Minors: l.Minors}
		for _, i := range l.Instances {
			rule.Layout = append(rule.Layout, layout.Count{Profile: i.Profile, Count: int(max(i.Count, 1))})
		}
		rules = append(rules, rule)
	}
	g.rules[pool] = rules
	return rules
}

func find(node *v1alpha1.GPUNode, uuid string) *v1alpha1.GPUStatus {
	for i := range node.Status.GPUs {
		if node.Status.GPUs[i].UUID == uuid {
			return &node.Status.GPUs[i]
		}
	}
	return nil
}

// formed says whether the agent offers a GPU in the form of its decision, tainted or not.
func formed(reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision) bool {
	p := reported.Published
	return assign.SameForm(*d, v1alpha1.GPUDecision{
		Pool: p.Pool, Partitioning: p.Partitioning, Strategy: p.Strategy, Sharing: p.Sharing,
	})
}

// failure is what keeps the agent from giving a GPU its form; "" where nothing does, or what does passes by itself.
func failure(reported *v1alpha1.GPUStatus) string {
	switch reported.Reason {
	case v1alpha1.ReasonDivideFailed, v1alpha1.ReasonMIGModeOff, v1alpha1.ReasonMIGModeOn, v1alpha1.ReasonMIGNotSupported:
		return reported.Reason + ": " + reported.Message
	default:
		return ""
	}
}

// holders say who has a GPU: pods that a claim is reserved for, claims without pods, and who else the agent sees.
func holders(node assign.Node, reported *v1alpha1.GPUStatus) []rollout.Holder {
	var list []rollout.Holder
	known := map[string]bool{}
	for _, a := range assign.ByGPU(node)[reported.UUID] {
		placement, _ := assign.PlacementOf(node.GPUNode, reported, a)
		for _, h := range holdersOf(a) {
			h.Placement = placement
			known[h.Name] = true
			list = append(list, h)
		}
	}
	add := func(names []string, placement gpu.Placement) {
		for _, name := range names {
			if !known[name] {
				known[name] = true
				list = append(list, rollout.Holder{Placement: placement, Name: name})
			}
		}
	}
	for _, i := range reported.Instances {
		add(i.HeldBy, gpu.Placement{Profile: i.Profile, Start: int(ptr.Deref(i.Start, 0))})
	}
	add(reported.HeldBy, gpu.Placement{})
	return list
}

func holdersOf(a assign.Allocation) []rollout.Holder {
	if len(a.Pods) == 0 {
		return []rollout.Holder{{Name: "claim " + a.Claim.String()}}
	}
	var list []rollout.Holder
	for i, pod := range a.Pods {
		h := rollout.Holder{Name: types.NamespacedName{Namespace: a.Claim.Namespace, Name: pod}.String(), Evictable: true}
		if i < len(a.UIDs) {
			h.UID = string(a.UIDs[i])
		}
		list = append(list, h)
	}
	return list
}

// PodOf is the pod that an evictable holder names.
func PodOf(h rollout.Holder) (types.NamespacedName, error) {
	namespace, name, found := strings.Cut(h.Name, "/")
	if !h.Evictable || !found {
		return types.NamespacedName{}, fmt.Errorf("%q names no pod", h.Name)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
