// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
)

// Counter counts refusals.
type Counter interface {
	Count(refusal *quota.Refusal)
}

// Early refuses what would be refused anyway when it is allocated, at a moment when the tenant is there to read why. It
// charges nothing, and nothing rests on it.
type Early struct {
	// Cache is the manager's cache, and Live asks the API server.
	Cache, Live client.Reader
	// Facts tells what is known of the pools.
	Facts Facts
	// Quotas tells which quotas hold.
	Quotas Quotas
	// Counter counts refusals.
	Counter Counter
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Pod decides about a pod as it is about to be stored.
func (e *Early) Pod(ctx context.Context, pod *corev1.Pod, namespace string, domain *quota.Domain) (*quota.Refusal, error) {
	pools, err := e.concerned(ctx, domain)
	if err != nil || pools == nil {
		return nil, err
	}
	catalog, err := e.catalog(ctx)
	if err != nil {
		return nil, err
	}
	demand := catalog.LeastOfExtended(&pod.Spec)
	for i := range pod.Spec.ResourceClaims {
		spec, err := e.claimOf(ctx, pod, namespace, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if spec != nil {
			demand = demand.Plus(catalog.LeastOf(spec))
		}
	}
	return e.decide(ctx, demand, namespace, domain, pools)
}

// Claim decides about a claim that somebody writes by hand.
func (e *Early) Claim(ctx context.Context, claim *resourceapi.ResourceClaim) (*quota.Refusal, error) {
	domain, err := e.Quotas.DomainOf(ctx, claim.Namespace)
	if err != nil {
		return nil, fmt.Errorf("reading the quotas of namespace %s: %w", claim.Namespace, err)
	}
	pools, err := e.concerned(ctx, domain)
	if err != nil || pools == nil {
		return nil, err
	}
	catalog, err := e.catalog(ctx)
	if err != nil {
		return nil, err
	}
	return e.decide(ctx, catalog.LeastOf(&claim.Spec), claim.Namespace, domain, pools)
}

// concerned are the pools by name; nil where neither a quota nor a pool's tenancy could refuse anything.
func (e *Early) concerned(ctx context.Context, domain *quota.Domain) (map[string]*v1alpha1.GPUPool, error) {
	objects, err := view.Pools(ctx, e.Cache)
	if err != nil {
		return nil, fmt.Errorf("reading the pools: %w", err)
	}
	bounded := domain != nil
	pools := make(map[string]*v1alpha1.GPUPool, len(objects))
	for i := range objects {
		tenancy := &objects[i].Spec.Tenancy
		bounded = bounded || tenancy.NamespaceSelector != nil || tenancy.Quota == v1alpha1.QuotaRequired
		pools[objects[i].Name] = &objects[i]
	}
	if !bounded {
		return nil, nil
	}
	return pools, nil
}

func (e *Early) catalog(ctx context.Context) (quota.Catalog, error) {
	pools, err := e.Facts.Pools(ctx)
	if err != nil {
		return quota.Catalog{}, fmt.Errorf("reading the pools: %w", err)
	}
	existing, err := view.Classes(ctx, e.Cache)
	if err != nil {
		return quota.Catalog{}, fmt.Errorf("reading the classes: %w", err)
	}
	catalog := quota.Catalog{Pools: pools}
	for i := range existing {
		if !classes.Managed(&existing[i]) {
			catalog.Foreign = append(catalog.Foreign, existing[i].Name)
		}
	}
	return catalog, nil
}

// claimOf is what one of a pod's claims will ask for; nil where that is not known yet, or is allocated already.
func (e *Early) claimOf(ctx context.Context, pod *corev1.Pod, namespace string, reference *corev1.PodResourceClaim) (*resourceapi.ResourceClaimSpec, error) {
	if name := reference.ResourceClaimName; name != nil {
		claim := &resourceapi.ResourceClaim{}
		err := e.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: *name}, claim)
		if err != nil || claim.Status.Allocation != nil {
			return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // logged where it is ignored
		}
		return &claim.Spec, nil
	}
	if reference.ResourceClaimTemplateName == nil {
		return nil, nil
	}
	name := *reference.ResourceClaimTemplateName
	if hash, ours := request.HashOfTemplate(name); ours {
		return ownTemplate(pod, hash), nil
	}
	// The cache has only the templates that Sluice makes.
	template := &resourceapi.ResourceClaimTemplate{}
	if err := e.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, template); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // logged where it is ignored
	}
	return &template.Spec.Spec, nil
}

// ownTemplate is what a template of Sluice asks for, which is made after the pod.
func ownTemplate(pod *corev1.Pod, hash string) *resourceapi.ResourceClaimSpec {
	encoded := pod.Annotations[v1alpha1.RequestAnnotation]
	canonical, err := request.Decode(encoded)
	if err != nil || request.Hash(encoded) != hash {
		return nil
	}
	template := request.Template(&canonical)
	return &template.Spec
}

func (e *Early) decide(
	ctx context.Context, demand quota.Demand, namespace string, domain *quota.Domain, pools map[string]*v1alpha1.GPUPool,
) (*quota.Refusal, error) {
	refusal, err := e.tenancy(ctx, demand, namespace, domain, pools)
	if err != nil {
		return nil, err
	}
	if refusal == nil && domain != nil {
		if refusal, err = e.quota(ctx, demand, namespace, domain); err != nil {
			return nil, err
		}
	}
	if refusal != nil {
		e.Counter.Count(refusal)
	}
	return refusal, nil
}

// tenancy refuses a request where every pool that may serve it does.
func (e *Early) tenancy(
	ctx context.Context, demand quota.Demand, namespace string, domain *quota.Domain, pools map[string]*v1alpha1.GPUPool,
) (*quota.Refusal, error) {
	labels, err := e.Quotas.LabelsOf(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("reading the labels of namespace %s: %w", namespace, err)
	}
	for _, choice := range demand.Choices() {
		var first *quota.Refusal
		for _, name := range choice {
			pool := pools[name]
			if pool == nil {
				first = nil
				break
			}
			refusal := quota.Admits(pool, namespace, labels, domain)
			if refusal == nil {
				first = nil
				break
			}
			if first == nil {
				first = refusal
			}
		}
		if first != nil {
			return first, nil
		}
	}
	return nil, nil
}

// quota refuses what is out of bounds or could never fit. Where pods do not wait for room, what does not fit now is
// refused too, unless it is within the guarantee.
func (e *Early) quota(ctx context.Context, demand quota.Demand, namespace string, domain *quota.Domain) (*quota.Refusal, error) {
	if refusal := domain.OutOfBoundsEarly(namespace, demand); refusal != nil {
		return refusal, nil
	}
	if domain.Queues(namespace) {
		return domain.Never(namespace, demand), nil
	}
	object := &v1alpha1.GPULedger{}
	if err := e.Cache.Get(ctx, client.ObjectKey{Name: domain.Ledger}, object); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ledger %s: %w", domain.Ledger, err)
	}
	refusal := domain.Fits(quota.ReadLedger(object), namespace, demand, e.Clock.Now())
	if refusal != nil && refusal.Reason == quota.RefusedLent {
		// It is taken back for whoever waits, so somebody has to.
		return nil, nil
	}
	return refusal, nil
}
