// SPDX-License-Identifier: Apache-2.0

// Package rollout plans how the GPUs of each pool come into the form that the pool wants, within what the pool lets be
// unavailable, and evicts the pods that are in the way when their time is over. It leaves its orders in a book; the
// decisions are written by the controller of GPUNodes.
package rollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/internal/rollouts"
)

// +kubebuilder:rbac:groups=sluice.dev,resources=gpupools;gpunodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

const (
	// burst is how long changes around a pool are gathered into one plan.
	burst = 500 * time.Millisecond
	// soonest is how soon a plan is made again for the clock alone: nodes follow a schedule one after the other.
	soonest = time.Second
)

// Reconciler plans the rollout of one pool.
type Reconciler struct {
	client  client.Client
	book    *orders.Book
	events  eventRecorder
	metrics *metrics
	evictor *evictor
	clock   clock.PassiveClock
	jitter  time.Duration
}

// Options are what the controller needs.
type Options struct {
	// Book is where the plans go.
	Book *orders.Book
	// Jitter is the time over which the nodes of a pool follow a schedule.
	Jitter time.Duration
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where the counters are registered.
	Metrics prometheus.Registerer
}

// New makes a reconciler.
func New(c client.Client, events eventRecorder, o Options) (*Reconciler, error) {
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		client: c, book: o.Book, events: events, metrics: m, clock: o.Clock, jitter: o.Jitter,
		evictor: newEvictor(c, o.Clock),
	}, nil
}

// Setup registers the controller.
func Setup(mgr ctrl.Manager, o Options) error {
	r, err := New(mgr.GetClient(), mgr.GetEventRecorder("sluice-manager"), o)
	if err != nil {
		return err
	}
	around := watch.After(burst, view.EveryPool(r.client, "A change reaches the rollouts"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("rollout").
		For(&v1alpha1.GPUPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, around).
		WatchesMetadata(view.NodeMetadata(), around, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&resourceapi.ResourceClaim{}, around, builder.WithPredicates(watch.AllocationChanged())).
		Complete(r)
}

// Reconcile gathers everything around a pool, plans, evicts, and leaves the orders in the book.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.GPUPool{}
	if err := r.client.Get(ctx, request.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.book.Forget(request.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading pool %s: %w", request.Name, err)
	}
	nodes, err := view.Nodes(ctx, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.clock.Now()
	plan := rollouts.Make(rollouts.Input{
		Pool: pool, Nodes: nodes, Begun: r.book.Begun(pool.Name), Jitter: r.jitter, Now: now,
	})
	outcome := r.evictor.evict(ctx, plan.Evictions)
	for _, done := range outcome.done {
		r.announce(pool, done)
	}
	r.metrics.count(pool.Name, outcome)
	if len(outcome.blocked) > 0 {
		plan.Message += fmt.Sprintf("; a PodDisruptionBudget does not let %s be evicted yet", strings.Join(outcome.blocked, ", "))
	}
	r.book.Put(ctx, pool.Name, plan, now)
	return ctrl.Result{RequeueAfter: again(plan, outcome, now)}, outcome.failure
}

// again is how long until the plan has to be made anew although nothing changes; 0: never.
func again(plan rollouts.Plan, outcome outcome, now time.Time) time.Duration {
	wait := outcome.wait
	if !plan.Again.IsZero() {
		until := max(plan.Again.Sub(now), soonest)
		if wait == 0 || until < wait {
			wait = until
		}
	}
	return wait
}
