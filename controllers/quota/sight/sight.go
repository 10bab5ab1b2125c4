// SPDX-License-Identifier: Apache-2.0

// Package sight reads what decisions about quotas are made from: quotas and their domains, devices, claims. Where the
// manager's cache may lag behind, and that would matter, the API server is asked.
package sight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// SlicesByPool is the index of ResourceSlices of this driver by their pool, which is a node.
const SlicesByPool = "sluice.slicePool"

// +kubebuilder:rbac:groups=sluice.dev,resources=gpuquotas;gpupools;gpunodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims;resourceslices,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Reader reads from a manager's cache, and from the API server.
type Reader struct {
	// Cache is the manager's cache.
	Cache client.Reader
	// Live asks the API server.
	Live client.Reader
}

// Index adds the index that this package reads by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &resourceapi.ResourceSlice{}, SlicesByPool, poolOf)
	if err != nil {
		return fmt.Errorf("indexing resource slices by pool: %w", err)
	}
	return nil
}

func poolOf(object client.Object) []string {
	slice, ok := object.(*resourceapi.ResourceSlice)
	if !ok || slice.Spec.Driver != v1alpha1.DriverName {
		return nil
	}
	return []string{slice.Spec.Pool.Name}
}

// NamespaceMetadata is a Namespace of which only the metadata is read.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// Quotas are all quotas that the cache has.
func (r Reader) Quotas(ctx context.Context) ([]v1alpha1.GPUQuota, error) {
	return quotasIn(ctx, r.Cache)
}

func quotasIn(ctx context.Context, reader client.Reader, options ...client.ListOption) ([]v1alpha1.GPUQuota, error) {
	quotas := &v1alpha1.GPUQuotaList{}
	if err := reader.List(ctx, quotas, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing quotas: %w", err)
	}
	return quotas.Items, nil
}

// QuotasOf are the quotas of a namespace. A namespace without any in the cache is looked up: one whose quota was made a
// moment ago has one.
func (r Reader) QuotasOf(ctx context.Context, namespace string) ([]v1alpha1.GPUQuota, error) {
	quotas, err := quotasIn(ctx, r.Cache, client.InNamespace(namespace))
	if err != nil || len(quotas) > 0 {
		return quotas, err
	}
	return quotasIn(ctx, r.Live, client.InNamespace(namespace))
}

// LedgerOf is the name of the ledger that judges a namespace; "" where it has no quota.
func (r Reader) LedgerOf(ctx context.Context, namespace string) (string, error) {
	quotas, err := r.QuotasOf(ctx, namespace)
	if err != nil {
		return "", err
	}
	return quota.LedgerOf(namespace, quotas), nil
}

// Domains are all domains, by ledger.
func (r Reader) Domains(ctx context.Context) (map[string]*quota.Domain, error) {
	quotas, err := r.Quotas(ctx)
	if err != nil {
		return nil, err
	}
	return r.divide(ctx, quotas)
}

func (r Reader) divide(ctx context.Context, quotas []v1alpha1.GPUQuota) (map[string]*quota.Domain, error) {
	pools, err := view.Pools(ctx, r.Cache)
	if err != nil {
		return nil, err
	}
	labels := map[string]map[string]string{}
	for i := range quotas {
		name := quotas[i].Namespace
		if _, known := labels[name]; known {
			continue
		}
		if labels[name], err = r.LabelsOf(ctx, name); err != nil {
			return nil, err
		}
	}
	return quota.Domains(quotas, pools, labels), nil
}

// Domain is the domain of a ledger; nil where no quota belongs to it.
func (r Reader) Domain(ctx context.Context, ledger string) (*quota.Domain, error) {
	quotas, err := r.within(ctx, ledger)
	if err != nil || len(quotas) == 0 {
		return nil, err
	}
	domains, err := r.divide(ctx, quotas)
	if err != nil {
		return nil, err
	}
	return domains[ledger], nil
}

// within are the quotas of the namespaces that a ledger judges. Only a cohort has several.
func (r Reader) within(ctx context.Context, ledger string) ([]v1alpha1.GPUQuota, error) {
	var options []client.ListOption
	if namespace, single := strings.CutPrefix(ledger, v1alpha1.LedgerNamespacePrefix); single {
		options = append(options, client.InNamespace(namespace))
	}
	quotas, err := quotasIn(ctx, r.Cache, options...)
	if err != nil {
		return nil, err
	}
	var kept []v1alpha1.GPUQuota
	for _, own := range ByNamespace(quotas) {
		if quota.LedgerOf(own[0].Namespace, own) == ledger {
			kept = append(kept, own...)
		}
	}
	return kept, nil
}

// ByNamespace sorts quotas into namespaces.
func ByNamespace(quotas []v1alpha1.GPUQuota) map[string][]v1alpha1.GPUQuota {
	sorted := map[string][]v1alpha1.GPUQuota{}
	for i := range quotas {
		sorted[quotas[i].Namespace] = append(sorted[quotas[i].Namespace], quotas[i])
	}
	return sorted
}

// DomainOf is the domain of a namespace; nil where it has no quota.
func (r Reader) DomainOf(ctx context.Context, namespace string) (*quota.Domain, error) {
	own, err := r.QuotasOf(ctx, namespace)
	if err != nil || len(own) == 0 {
		return nil, err
	}
	ledger := quota.LedgerOf(namespace, own)
	quotas, err := r.within(ctx, ledger)
	if err != nil {
		return nil, err
	}
	quotas = slices.DeleteFunc(quotas, func(q v1alpha1.GPUQuota) bool { return q.Namespace == namespace })
	domains, err := r.divide(ctx, append(quotas, own...))
	if err != nil {
		return nil, err
	}
	return domains[ledger], nil
}

// LabelsOf are the labels of a namespace; none where it is gone.
func (r Reader) LabelsOf(ctx context.Context, name string) (map[string]string, error) {
	for _, reader := range []client.Reader{r.Cache, r.Live} {
		namespace := NamespaceMetadata()
		err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
		if err == nil {
			return namespace.Labels, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading the labels of namespace %s: %w", name, err)
		}
	}
	return nil, nil
}

// Pool is a pool; nil where there is none.
func (r Reader) Pool(ctx context.Context, name string) (*v1alpha1.GPUPool, error) {
	for _, reader := range []client.Reader{r.Cache, r.Live} {
		pool := &v1alpha1.GPUPool{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, pool)
		if err == nil {
			return pool, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading pool %s: %w", name, err)
		}
	}
	return nil, nil
}

// Ledger is a ledger as the API server has it; an empty one where there is none.
func (r Reader) Ledger(ctx context.Context, name string) (*quota.Ledger, error) {
	object := &v1alpha1.GPULedger{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return quota.NewLedger(name), nil
	case err != nil:
		return nil, fmt.Errorf("reading ledger %s: %w", name, err)
	}
	return quota.ReadLedger(object), nil
}
