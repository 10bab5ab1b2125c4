// SPDX-License-Identifier: Apache-2.0

// Package standing writes GPUQuota.status from what the ledgers count, with the metrics and events that go with it.
package standing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/internal/quota"
)

const (
	// reportedBy names the events' source.
	reportedBy = "sluice-manager"
	// burst is how long changes of a ledger are gathered into one status: at most four writes a second.
	burst = 250 * time.Millisecond
)

// +kubebuilder:rbac:groups=sluice.dev,resources=gpuquotas/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Waiting tells how many pods wait.
type Waiting interface {
	// Of is how many pods of a namespace wait for room.
	Of(namespace string) int32
}

// Options are what the controller needs.
type Options struct {
	// Sight sees quotas.
	Sight sight.Reader
	// Waiting tells how many pods wait.
	Waiting Waiting
	// Blocked says what keeps borrowed pods from being evicted for a namespace; "" for nothing.
	Blocked func(namespace string) string
	// Changed names ledgers whose queues became longer or shorter.
	Changed <-chan event.GenericEvent
	// Metrics is where metrics are registered.
	Metrics prometheus.Registerer
}

// eventRecorder is what the controller asks of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// Reconciler writes the status of the quotas of one ledger.
type Reconciler struct {
	client  client.Client
	events  eventRecorder
	metrics *metrics
	options Options

	mu    sync.Mutex
	shown map[types.NamespacedName]string // the quotas that have metrics, with their ledgers
}

var _ reconcile.Reconciler = &Reconciler{}

// New makes a reconciler.
func New(c client.Client, events eventRecorder, o Options) (*Reconciler, error) {
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Reconciler{client: c, events: events, metrics: m, options: o, shown: map[types.NamespacedName]string{}}, nil
}

// Setup registers the controller.
func Setup(mgr ctrl.Manager, o Options) error {
	r, err := New(mgr.GetClient(), mgr.GetEventRecorder(reportedBy), o)
	if err != nil {
		return err
	}
	all := watch.After(burst, r.every)
	controller := ctrl.NewControllerManagedBy(mgr).
		Named("gpuquota").
		Watches(&v1alpha1.GPULedger{}, watch.After(burst, itself)).
		Watches(&v1alpha1.GPUQuota{}, watch.At(r.ofQuota), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUPool{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(sight.NamespaceMetadata(), all, builder.WithPredicates(predicate.LabelChangedPredicate{}))
	if o.Changed != nil {
		controller = controller.WatchesRawSource(source.Channel(o.Changed, watch.After(burst, itself)))
	}
	if err := controller.Complete(r); err != nil {
		return fmt.Errorf("setting up the quotas' status: %w", err)
	}
	return nil
}

func itself(_ context.Context, object client.Object) []string { return []string{object.GetName()} }

// every names the ledgers of all quotas.
func (r *Reconciler) every(ctx context.Context, object client.Object) []string {
	domains, err := r.options.Sight.Domains(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "A change reaches the quotas' status only with the next one", "object", object.GetName())
		return nil
	}
	return slices.Collect(maps.Keys(domains))
}

// ofQuota names the ledgers that judge a quota's namespace, or did: a quota may have left one for another.
func (r *Reconciler) ofQuota(ctx context.Context, object client.Object) []string {
	quotas, err := r.options.Sight.Quotas(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "A change reaches the quotas' status only with the next one", "quota", object.GetName())
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for key, name := range r.shown {
		if key.Namespace == object.GetNamespace() {
			names = append(names, name)
		}
	}
	if name := quota.LedgerOf(object.GetNamespace(), quotas); name != "" {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Reconcile writes the status of each quota that a ledger judges.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	all, err := r.options.Sight.Quotas(ctx)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the quotas: %w", err)
	}
	domain, err := r.options.Sight.Domain(ctx, request.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the quotas of ledger %s: %w", request.Name, err)
	}
	r.retain(request.Name, domain, all)
	if domain == nil {
		return ctrl.Result{}, nil
	}
	counted, err := r.ledger(ctx, request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	pools, err := view.Pools(ctx, r.client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the pools of ledger %s: %w", request.Name, err)
	}
	standings := domain.Standings(counted)
	var failures []error
	for i := range domain.Quotas {
		q := &domain.Quotas[i]
		key := types.NamespacedName{Namespace: q.Namespace, Name: q.Name}
		r.metrics.set(q, standings[key])
		status := r.statusOf(q, standings[key], counted, pools)
		failures = append(failures, r.write(ctx, key, status))
	}
	return ctrl.Result{}, errors.Join(failures...)
}

// ledger is what is counted, as the cache has it; nothing where there is no ledger yet.
func (r *Reconciler) ledger(ctx context.Context, name string) (*quota.Ledger, error) {
	object := &v1alpha1.GPULedger{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return quota.NewLedger(name), nil
	case err != nil:
		return nil, fmt.Errorf("reading ledger %s: %w", name, err)
	}
	return quota.ReadLedger(object), nil
}

// retain drops the metrics of quotas that are gone.
func (r *Reconciler) retain(name string, domain *quota.Domain, all []v1alpha1.GPUQuota) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[types.NamespacedName]bool{}
	for i := range all {
		there[client.ObjectKeyFromObject(&all[i])] = true
	}
	for key := range r.shown {
		if there[key] {
			continue
		}
		r.metrics.forget(key)
		delete(r.shown, key)
	}
	if domain == nil {
		return
	}
	for i := range domain.Quotas {
		r.shown[types.NamespacedName{Namespace: domain.Quotas[i].Namespace, Name: domain.Quotas[i].Name}] = name
	}
}
