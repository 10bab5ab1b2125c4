// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// Source reads what pods wait for, and tells when it changes.
type Source struct {
	// Reader gathers.
	Reader *Reader

	sight sight.Reader
	pods  cache.Cache
}

// NewSource adds what it needs to the manager.
func NewSource(mgr ctrl.Manager, pools PoolReader) (*Source, error) {
	pods, err := NewCache(mgr)
	if err != nil {
		return nil, err
	}
	seen := sight.Reader{Cache: mgr.GetClient(), Live: mgr.GetAPIReader()}
	return &Source{
		Reader: &Reader{Quotas: seen, Cache: mgr.GetClient(), Pods: pods, Pools: pools},
		sight:  seen, pods: pods,
	}, nil
}

// Watch has a controller look at a ledger, whose name is the request's, a moment after something around it has changed.
func (s *Source) Watch(controller *builder.Builder, moment time.Duration) *builder.Builder {
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, deletionChanged())
	return controller.
		Watches(&v1alpha1.GPULedger{}, watch.After(moment, func(_ context.Context, object client.Object) []string {
			return []string{object.GetName()}
		})).
		Watches(&v1alpha1.GPUQuota{}, watch.After(moment, s.ofQuota), builder.WithPredicates(changed)).
		Watches(&v1alpha1.GPUPool{}, watch.After(moment, s.everyLedger), builder.WithPredicates(changed)).
		WatchesMetadata(sight.NamespaceMetadata(), watch.After(moment, s.ofNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](s.pods, &corev1.Pod{}, watch.After(moment, s.ofPod)))
}

// deletionChanged lets through what begins to be deleted.
func deletionChanged() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return !object.GetDeletionTimestamp().IsZero() })
}

// ofPod is the ledger of a pod that waits, or may get devices. A gated pod of a namespace without a quota has to be let go.
func (s *Source) ofPod(ctx context.Context, object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || !quota.Gated(pod) && !quota.MayAsk(pod) {
		return nil
	}
	ledger := s.ledgerOf(ctx, pod.Namespace)
	if ledger == "" && quota.Gated(pod) {
		ledger = v1alpha1.LedgerNamespacePrefix + pod.Namespace
	}
	if ledger == "" {
		return nil
	}
	return []string{ledger}
}

// ofQuota is every ledger that a quota may have belonged to, or belongs to.
func (s *Source) ofQuota(ctx context.Context, object client.Object) []string {
	q, ok := object.(*v1alpha1.GPUQuota)
	if !ok {
		return nil
	}
	names := []string{v1alpha1.LedgerNamespacePrefix + q.Namespace}
	if q.Spec.Cohort != "" {
		names = append(names, v1alpha1.LedgerCohortPrefix+q.Spec.Cohort)
	}
	if now := s.ledgerOf(ctx, q.Namespace); now != "" {
		names = append(names, now)
	}
	return names
}

func (s *Source) ofNamespace(ctx context.Context, object client.Object) []string {
	if ledger := s.ledgerOf(ctx, object.GetName()); ledger != "" {
		return []string{ledger}
	}
	return nil
}

func (s *Source) everyLedger(ctx context.Context, _ client.Object) []string {
	ledgers := &v1alpha1.GPULedgerList{}
	if err := s.sight.Cache.List(ctx, ledgers, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "A change of a pool reaches the queues only with the next one")
		return nil
	}
	names := make([]string, 0, len(ledgers.Items))
	for i := range ledgers.Items {
		names = append(names, ledgers.Items[i].Name)
	}
	return names
}

// ledgerOf is the ledger of a namespace as the cache knows it: an event is no time to ask the API server.
func (s *Source) ledgerOf(ctx context.Context, namespace string) string {
	quotas := &v1alpha1.GPUQuotaList{}
	if err := s.sight.Cache.List(ctx, quotas, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "A change reaches the queue only with the next one", "namespace", namespace)
		return ""
	}
	return quota.LedgerOf(namespace, quotas.Items)
}
