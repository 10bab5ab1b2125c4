// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// page is how many pods are asked for at a time.
const page = 500

// terms are what a cohort's pools say about taking back.
type terms struct {
	grace time.Duration
}

// terms are the shortest grace of the pools in which quotas lend: within it a guarantee is met.
func (r *Reconciler) terms(ctx context.Context, domain *quota.Domain) (terms, error) {
	pools, err := view.Pools(ctx, r.Client)
	if err != nil {
		return terms{}, fmt.Errorf("reading the grace of the pools: %w", err)
	}
	lends := map[string]bool{}
	for i := range domain.Quotas {
		if q := &domain.Quotas[i]; q.Joined {
			for _, name := range q.Pools {
				lends[name] = true
			}
		}
	}
	seconds := int32(-1)
	for i := range pools {
		if own := pools[i].ReclaimGraceSeconds(); lends[pools[i].Name] && (seconds < 0 || own < seconds) {
			seconds = own
		}
	}
	return terms{grace: time.Duration(max(0, seconds)) * time.Second}, nil
}

// look reads what a namespace holds: claims first, then pods, so that the pod of each claim is among them unless it is
// gone.
func (r *Reconciler) look(ctx context.Context, namespace string) (look, error) {
	seen, err := r.Observer.LookCached(ctx, "", namespace)
	if err != nil {
		return look{}, fmt.Errorf("reading what namespace %s has borrowed: %w", namespace, err)
	}
	costs := make(map[types.UID]quota.SeenClaim, len(seen.Claims))
	for _, claim := range seen.Claims {
		costs[types.UID(claim.UID)] = claim
	}
	claims := &resourceapi.ResourceClaimList{}
	if err := r.Client.List(ctx, claims, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return look{}, fmt.Errorf("listing the claims of namespace %s: %w", namespace, err)
	}
	l := look{namespace: namespace, complete: true}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if !ours(claim) {
			continue
		}
		cost, shown := costs[claim.UID]
		l.complete = l.complete && shown && cost.Unknown == 0
		if shown && !cost.Charges.Zero() {
			l.claims = append(l.claims, held{claim: claim, charges: cost.Charges})
		}
	}
	l.pods, err = r.podsOf(ctx, namespace)
	return l, err
}

func ours(claim *resourceapi.ResourceClaim) bool {
	return claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
		func(result resourceapi.DeviceRequestAllocationResult) bool {
			return result.Driver == v1alpha1.DriverName
		})
}

// podsOf are the pods of a namespace as the API server has them.
func (r *Reconciler) podsOf(ctx context.Context, namespace string) (map[types.UID]*corev1.Pod, error) {
	found := map[types.UID]*corev1.Pod{}
	next := ""
	for {
		pods := &corev1.PodList{}
		if err := r.Live.List(ctx, pods, client.InNamespace(namespace), client.Limit(page), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
		}
		for i := range pods.Items {
			found[pods.Items[i].UID] = &pods.Items[i]
		}
		if next = pods.Continue; next == "" {
			return found, nil
		}
	}
}
