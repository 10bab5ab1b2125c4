// SPDX-License-Identifier: Apache-2.0

// Package assign decides which pool holds each GPU of a node and in which form. It is the only place where pools compete
// for GPUs, and the only place where a decision that is in force may be replaced.
package assign

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Node is what the manager knows of one node.
type Node struct {
	// GPUNode is the node's object: the decisions in force and the agent's report.
	GPUNode *v1alpha1.GPUNode
	// Labels are the Node's.
	Labels map[string]string
	// Allocations are what claims hold on the node.
	Allocations []Allocation
}

// Result is what is to be written, and what the caller has to come back for.
type Result struct {
	// Decisions are the node's new GPUNode.spec.gpus, ordered by UUID.
	Decisions []v1alpha1.GPUDecision
	// Settling are the GPUs whose decision can be replaced as soon as the settle time has passed.
	Settling []string
}

// TaintAge says how long the scheduler has known that a GPU takes no new tenants.
type TaintAge int

const (
	// TaintUnseen: there is no taint, or the agent has not published it.
	TaintUnseen TaintAge = iota
	// TaintSettling: the taint is published, but an allocation may still be on its way.
	TaintSettling
	// TaintSettled: the taint has been published for so long that no allocation can be on its way.
	TaintSettled
)

// Decide says what each GPU of a node is to be.
//
// A GPU without a decision goes to the oldest pool that selects it. A decision in force stays with its pool while
// anything is allocated on the GPU. Where the pool is to lose the GPU, the old decision is kept with a taint until the
// taint has settled and nothing is allocated, and only then replaced. Where the pool wants the GPU in another form, or
// with other instances, that waits for the order of the pool's rollout, and then for what is in the way of it.
//
// A GPUNode that is being deleted takes no GPU that it does not hold already; what it holds goes on as before.
//
// The pools are as they are on the node now: what a schedule overrides is overridden. Orders are by pool.
func Decide(node Node, pools []v1alpha1.GPUPool, taints map[string]TaintAge, orders map[string]Orders, now time.Time) Result {
	reported := make(map[string]*v1alpha1.GPUStatus, len(node.GPUNode.Status.GPUs))
	for i := range node.GPUNode.Status.GPUs {
		reported[node.GPUNode.Status.GPUs[i].UUID] = &node.GPUNode.Status.GPUs[i]
	}
	inForce := InForce(node)
	uuids := slices.Collect(maps.Keys(reported))
	for uuid := range inForce {
		if reported[uuid] == nil {
			uuids = append(uuids, uuid)
		}
	}
	slices.Sort(uuids)

	held := Held(node)
	var result Result
	for _, uuid := range uuids {
		if inForce[uuid] == nil && !node.GPUNode.DeletionTimestamp.IsZero() {
			continue
		}
		c := contest{
			node: node, uuid: uuid, gpu: reported[uuid], pools: pools,
			inForce: inForce[uuid], held: held[uuid], orders: orders, now: metav1.NewTime(now),
		}
		age := taints[uuid]
		if !TaintStands(node.GPUNode, uuid) {
			age = TaintUnseen
		}
		decision, waits := c.decide(age)
		if decision != nil {
			result.Decisions = append(result.Decisions, *decision)
		}
		if waits {
			result.Settling = append(result.Settling, uuid)
		}
	}
	return result
}

// contest is one GPU and the pools around it.
type contest struct {
	node    Node
	uuid    string
	gpu     *v1alpha1.GPUStatus // nil where the agent does not report the GPU
	pools   []v1alpha1.GPUPool
	inForce *v1alpha1.GPUDecision // nil where the GPU is new
	held    bool
	orders  map[string]Orders // by pool
	now     metav1.Time
}

// decide returns the GPU's decision, nil for none, and whether only the settle time is being waited for.
func (c contest) decide(age TaintAge) (*v1alpha1.GPUDecision, bool) {
	next := c.next()
	if c.inForce == nil {
		return next, false
	}
	incumbent := c.incumbent()
	reason := c.leaves(incumbent, next)
	switch {
	case reason == "":
		return c.stay(incumbent, age)
	case !c.held && age == TaintSettled:
		return next, false
	default:
		return c.tainted(*c.inForce, reason), !c.held && age == TaintSettling
	}
}

// leaves says why the pool cannot keep the GPU; "" where it can.
func (c contest) leaves(incumbent *v1alpha1.GPUPool, next *v1alpha1.GPUDecision) v1alpha1.TaintReason {
	switch {
	case incumbent == nil || !incumbent.DeletionTimestamp.IsZero():
		return v1alpha1.TaintPoolDeleted
	case !c.selects(incumbent):
		return v1alpha1.TaintNotSelected
	case !c.held && next != nil && next.Pool != incumbent.Name:
		return v1alpha1.TaintNotSelected
	default:
		return ""
	}
}

// tainted is a decision with a taint. The time stays while there is any taint: who is waited for has been told.
func (c contest) tainted(d v1alpha1.GPUDecision, reason v1alpha1.TaintReason) *v1alpha1.GPUDecision {
	if d.Taint == "" || d.TaintedSince.IsZero() {
		d.TaintedSince = ptr.To(c.now)
	}
	d.Taint = reason
	return &d
}

// selects says whether a pool's selectors match the GPU. A nodeSelector that cannot be read says nothing, so it selects
// just what the pool holds: a slip of the pen must not drain a pool.
func (c contest) selects(pool *v1alpha1.GPUPool) bool {
	if _, err := NodeSelector(pool); err != nil {
		return c.inForce != nil && c.inForce.Pool == pool.Name && SelectsGPU(pool, c.uuid, c.gpu)
	}
	return Selects(pool, c.node.Labels, c.uuid, c.gpu)
}

// incumbent is the pool whose decision is in force; nil where it does not exist any more.
func (c contest) incumbent() *v1alpha1.GPUPool {
	for i := range c.pools {
		if c.pools[i].Name == c.inForce.Pool {
			return &c.pools[i]
		}
	}
	return nil
}

// next is the decision of the pool that has the GPU once nobody holds it: the oldest that selects it, then by name.
func (c contest) next() *v1alpha1.GPUDecision {
	var first *v1alpha1.GPUPool
	for i := range c.pools {
		pool := &c.pools[i]
		if !pool.DeletionTimestamp.IsZero() || !c.selects(pool) {
			continue
		}
		if first == nil || Before(pool, first) {
			first = pool
		}
	}
	if first == nil {
		return nil
	}
	decision := Decision(first, c.uuid)
	if _, excluded := Excludes(first, c.uuid); excluded {
		return c.tainted(decision, v1alpha1.TaintExcluded)
	}
	return &decision
}

// Before says whether pool a has a free GPU before pool b: the older one, then the one whose name sorts first.
func Before(a, b *v1alpha1.GPUPool) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return strings.Compare(a.Name, b.Name) < 0
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// TaintStands says whether the decision in force for a GPU asks for a taint and the agent reports nothing against it: the
// GPU is published with a taint or not at all.
func TaintStands(node *v1alpha1.GPUNode, uuid string) bool {
	wanted := slices.ContainsFunc(node.Decisions(), func(d v1alpha1.GPUDecision) bool {
		return d.UUID == uuid && d.Taint != ""
	})
	if !wanted {
		return false
	}
	for _, gpu := range node.Status.GPUs {
		if gpu.UUID == uuid {
			return gpu.Published == (v1alpha1.PublishedForm{}) || gpu.Published.Taint != ""
		}
	}
	return true
}

// TaintPublished says whether the agent has published the taint that the decision in force asks for. From then on it is
// enough that the taint stands: while the decisions for other GPUs change, the agent is behind, but keeps this one.
func TaintPublished(node *v1alpha1.GPUNode, uuid string) bool {
	return node.Status.ObservedGeneration >= node.Generation && TaintStands(node, uuid)
}
