// SPDX-License-Identifier: Apache-2.0

package count

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/internal/quota"
)

const (
	// burst is how long allocations are gathered into one count.
	burst = 100 * time.Millisecond
	// settleBurst is how long other changes are.
	settleBurst = time.Second
	// workers is how many ledgers are counted at a time.
	workers = 4
)

// Setup registers the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("gpuledger").
		Watches(&v1alpha1.GPUQuota{}, watch.At(r.ofQuota), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&resourceapi.ResourceClaim{}, watch.After(burst, r.ofNamespace), builder.WithPredicates(watch.AllocationChanged())).
		Watches(&v1alpha1.GPULedger{}, watch.After(settleBurst, itself)).
		Watches(&resourceapi.ResourceSlice{}, watch.After(settleBurst, r.unknown)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the count of quotas: %w", err)
	}
	return nil
}

func itself(_ context.Context, object client.Object) []string { return []string{object.GetName()} }

// ofNamespace names the ledger of an object's namespace.
func (r *Reconciler) ofNamespace(ctx context.Context, object client.Object) []string {
	quotas, err := r.Sight.Quotas(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "A change is counted only with the next one", "namespace", object.GetNamespace())
		return nil
	}
	if name := quota.LedgerOf(object.GetNamespace(), quotas); name != "" {
		return []string{name}
	}
	return nil
}

// ofQuota names the ledgers that have to do with a quota's namespace, also those that had.
func (r *Reconciler) ofQuota(ctx context.Context, object client.Object) []string {
	names := r.ofNamespace(ctx, object)
	return append(names, r.ledgers(ctx, func(l *v1alpha1.GPULedger) bool { return knows(l, object.GetNamespace()) })...)
}

// unknown names the ledgers that count devices which nothing describes: a slice may now.
func (r *Reconciler) unknown(ctx context.Context, _ client.Object) []string {
	return r.ledgers(ctx, func(l *v1alpha1.GPULedger) bool {
		for i := range l.Spec.Namespaces {
			if ptr.Deref(l.Spec.Namespaces[i].Unknown, 0) > 0 {
				return true
			}
		}
		return false
	})
}

func (r *Reconciler) ledgers(ctx context.Context, chosen func(*v1alpha1.GPULedger) bool) []string {
	list := &v1alpha1.GPULedgerList{}
	if err := r.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "A change reaches ledgers only with the next one")
		return nil
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec != nil && chosen(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}
