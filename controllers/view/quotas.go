// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// Quotas are all GPUQuotas.
func Quotas(ctx context.Context, reader client.Reader, options ...client.ListOption) ([]v1alpha1.GPUQuota, error) {
	quotas := &v1alpha1.GPUQuotaList{}
	if err := reader.List(ctx, quotas, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing quotas: %w", err)
	}
	return quotas.Items, nil
}

// NamespaceMetadata is a Namespace of which only the metadata is read.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// Domains divides all quotas into the domains of their ledgers, by the ledger's name.
func Domains(ctx context.Context, reader client.Reader) (map[string]*quota.Domain, error) {
	quotas, err := Quotas(ctx, reader)
	if err != nil || len(quotas) == 0 {
		return nil, err
	}
	pools, err := Pools(ctx, reader)
	if err != nil {
		return nil, err
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := reader.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the namespaces' labels: %w", err)
	}
	labels := make(map[string]map[string]string, len(namespaces.Items))
	for i := range namespaces.Items {
		labels[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	return quota.Domains(quotas, pools, labels), nil
}
