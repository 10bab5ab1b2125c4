// SPDX-License-Identifier: Apache-2.0

// Package pool writes GPUPool.status and keeps a deleted pool until its tenants are gone.
package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/internal/poolstatus"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/rollouts"
)

// +kubebuilder:rbac:groups=sluice.dev,resources=gpupools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=sluice.dev,resources=gpupools/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// burst is how long changes around a pool are gathered into one status: at most two writes a second.
const burst = 500 * time.Millisecond

// Reconciler sums up one pool.
type Reconciler struct {
	client            client.Client
	events            eventRecorder
	metrics           *metrics
	quotas            quotaReader
	extendedResources bool
	book              *orders.Book
	jitter            time.Duration
	clock             clock.PassiveClock
}

// quotaReader is what the controller asks about quotas.
type quotaReader interface {
	// Domains are all domains, by ledger.
	Domains(ctx context.Context) (map[string]*quota.Domain, error)
}

// Options are what the controller needs.
type Options struct {
	// ExtendedResources says whether the pools' classes carry extended resource names.
	ExtendedResources bool
	// Book has the plans of the pools' rollouts.
	Book *orders.Book
	// ScheduleJitter is the time over which nodes follow a schedule.
	ScheduleJitter time.Duration
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where the pools' gauges are registered.
	Metrics prometheus.Registerer
	// Live asks the API server what the cache does not have yet.
	Live client.Reader
}

// New makes a reconciler.
func New(c client.Client, events eventRecorder, o Options) (*Reconciler, error) {
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		client: c, events: events, metrics: m, extendedResources: o.ExtendedResources,
		quotas: sight.Reader{Cache: c, Live: o.Live}, book: o.Book, jitter: o.ScheduleJitter, clock: o.Clock,
	}, nil
}

// Setup registers the controller.
func Setup(mgr ctrl.Manager, o Options) error {
	o.Live = mgr.GetAPIReader()
	r, err := New(mgr.GetClient(), mgr.GetEventRecorder("sluice-manager"), o)
	if err != nil {
		return err
	}
	around := watch.After(burst, view.EveryPool(r.client, "A change reaches the pools' status"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("gpupool").
		For(&v1alpha1.GPUPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUPool{}, around, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, around).
		WatchesMetadata(view.NodeMetadata(), around, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&resourceapi.ResourceClaim{}, around, builder.WithPredicates(watch.AllocationChanged())).
		Watches(&resourceapi.DeviceClass{}, around).
		Watches(&v1alpha1.GPUQuota{}, around, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(r.book.Pools(), &handler.EnqueueRequestForObject{})).
		Complete(r)
}

// Reconcile gathers everything around a pool, says what its status is, and writes it once.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.GPUPool{}
	if err := r.client.Get(ctx, request.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.metrics.forget(request.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading pool %s: %w", request.Name, err)
	}
	if err := r.ensureFinalizer(ctx, pool); err != nil {
		return ctrl.Result{}, err
	}
	in, err := r.gather(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	result := poolstatus.Compute(in)
	if result.Released {
		return ctrl.Result{}, r.release(ctx, pool)
	}
	err = r.writeStatus(ctx, pool, result)
	if result.Again.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(result.Again.Sub(in.Now), time.Millisecond)}, err
}

func (r *Reconciler) gather(ctx context.Context, pool *v1alpha1.GPUPool) (poolstatus.Input, error) {
	in := poolstatus.Input{Pool: pool, Now: r.clock.Now()}
	var err error
	if in.Pools, err = view.Pools(ctx, r.client); err != nil {
		return in, err
	}
	if in.Nodes, err = view.Nodes(ctx, r.client); err != nil {
		return in, err
	}
	if in.Classes, err = view.Classes(ctx, r.client); err != nil {
		return in, err
	}
	nodes, err := view.GPUNodes(ctx, r.client)
	if err != nil {
		return in, err
	}
	in.Needs = classes.Needs(in.Pools, nodes, r.extendedResources)
	if len(pool.Spec.Tenancy.Cohorts) > 0 {
		domains, err := r.quotas.Domains(ctx)
		if err != nil {
			return in, fmt.Errorf("reading what is guaranteed of pool %s: %w", pool.Name, err)
		}
		in.OverGuaranteed = quota.OverGuaranteed(pool.Name, domains, quota.Capacities(nodes))
	}
	var planned bool
	if in.Plan, planned = r.book.Plan(pool.Name); !planned || in.Plan.Generation != pool.Generation {
		in.Plan = rollouts.Make(rollouts.Input{
			Pool: pool, Nodes: in.Nodes, Begun: r.book.Begun(pool.Name), Jitter: r.jitter, Now: in.Now,
		})
	}
	return in, nil
}

// ensureFinalizer keeps a pool from vanishing under its tenants.
func (r *Reconciler) ensureFinalizer(ctx context.Context, pool *v1alpha1.GPUPool) error {
	if !pool.DeletionTimestamp.IsZero() {
		return nil
	}
	before := pool.DeepCopy()
	if !controllerutil.AddFinalizer(pool, v1alpha1.PoolFinalizer) {
		return nil
	}
	if err := r.client.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer of pool %s: %w", pool.Name, err)
	}
	return nil
}

// release lets a deleted pool go.
func (r *Reconciler) release(ctx context.Context, pool *v1alpha1.GPUPool) error {
	before := pool.DeepCopy()
	if !controllerutil.RemoveFinalizer(pool, v1alpha1.PoolFinalizer) {
		return nil
	}
	err := r.client.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of pool %s: %w", pool.Name, err)
	}
	log.FromContext(ctx).Info("Released the deleted pool")
	return nil
}
