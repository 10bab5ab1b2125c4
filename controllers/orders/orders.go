// SPDX-License-Identifier: Apache-2.0

// Package orders is where the rollouts of pools leave what is to be done with each GPU, for the controllers that do it and
// say it. It is memory only: after a restart the plans are made anew from what is decided and reported.
package orders

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/internal/rollouts"
)

// backlog is how many news wait for a controller that is busy.
const backlog = 1024

// Book holds the plan of each pool.
type Book struct {
	mu    sync.Mutex
	plans map[string]rollouts.Plan
	begun map[string]map[rollouts.Key]time.Time
	nodes chan event.GenericEvent
	pools chan event.GenericEvent
}

// NewBook makes an empty book.
func NewBook() *Book {
	return &Book{
		plans: map[string]rollouts.Plan{},
		begun: map[string]map[rollouts.Key]time.Time{},
		nodes: make(chan event.GenericEvent, backlog),
		pools: make(chan event.GenericEvent, backlog),
	}
}

// Nodes tells of GPUNodes for which there are new orders.
func (b *Book) Nodes() <-chan event.GenericEvent { return b.nodes }

// Pools tells of pools whose plan is another one.
func (b *Book) Pools() <-chan event.GenericEvent { return b.pools }

// Orders are the orders for a node, by pool.
func (b *Book) Orders(node string) map[string]assign.Orders {
	b.mu.Lock()
	defer b.mu.Unlock()
	orders := map[string]assign.Orders{}
	for pool, plan := range b.plans {
		if of := plan.Orders[node]; len(of) > 0 {
			orders[pool] = of
		}
	}
	return orders
}

// Plan is a pool's plan; false where none has been made yet.
func (b *Book) Plan(pool string) (rollouts.Plan, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	plan, found := b.plans[pool]
	return plan, found
}

// Begun are the changes that a pool's plans have begun, with the time, until they are over.
func (b *Book) Begun(pool string) map[rollouts.Key]time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	begun := make(map[rollouts.Key]time.Time, len(b.begun[pool]))
	maps.Copy(begun, b.begun[pool])
	return begun
}

// Put replaces a pool's plan and tells those whom it concerns.
func (b *Book) Put(ctx context.Context, pool string, plan rollouts.Plan, now time.Time) {
	b.mu.Lock()
	before, known := b.plans[pool]
	b.plans[pool] = plan
	b.begun[pool] = stillBegun(b.begun[pool], plan, now)
	b.mu.Unlock()
	for _, node := range changedNodes(before, plan) {
		tell(ctx, b.nodes, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}})
	}
	if !known || !sameReport(before, plan) {
		tell(ctx, b.pools, &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: pool}})
	}
}

// Forget drops the plan of a pool that is gone.
func (b *Book) Forget(pool string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.plans, pool)
	delete(b.begun, pool)
}

// stillBegun keeps what has begun until it is over, and adds what begins now.
func stillBegun(before map[rollouts.Key]time.Time, plan rollouts.Plan, now time.Time) map[rollouts.Key]time.Time {
	after := map[rollouts.Key]time.Time{}
	for node, orders := range plan.Orders {
		for uuid, order := range orders {
			key := rollouts.Key{Node: node, UUID: uuid}
			since, begun := before[key]
			switch order.Step {
			case rollout.StepBegin:
				after[key] = now
			case rollout.StepDrain, rollout.StepEvict, rollout.StepSettle, rollout.StepReady, rollout.StepApply:
				if begun {
					after[key] = since
				}
			default:
			}
		}
	}
	return after
}

// changedNodes are the nodes with orders that differ.
func changedNodes(before, after rollouts.Plan) []string {
	var nodes []string
	for node, orders := range after.Orders {
		if !reflect.DeepEqual(before.Orders[node], orders) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// sameReport says whether two plans say the same to people.
func sameReport(a, b rollouts.Plan) bool {
	return a.Generation == b.Generation && a.Message == b.Message && a.Reason == b.Reason && a.RefusedReason == b.RefusedReason &&
		apiequality.Semantic.DeepEqual(a.Counts, b.Counts) && reflect.DeepEqual(a.Refused, b.Refused)
}

func tell(ctx context.Context, news chan<- event.GenericEvent, object client.Object) {
	select {
	case news <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}
