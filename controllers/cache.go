// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/certs"
	"github.com/sluice-gpu/sluice/controllers/quota/peer"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/controllers/view"
)

// CacheOptions say what the manager keeps in memory: of pods only the metadata of those that admission changed, of Nodes
// only names and labels, of Namespaces too, of Secrets and Leases only its own, of claim templates only those that it made,
// of ResourceSlices only those of its driver.
func CacheOptions(namespace string) (cache.Options, error) {
	asked, err := labels.NewRequirement(v1alpha1.RequestLabel, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("selecting pods by label: %w", err)
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			podMetadata():             {Label: labels.NewSelector().Add(*asked)},
			view.NodeMetadata():       {Transform: onlyLabels},
			sight.NamespaceMetadata(): {Transform: onlyLabels},
			&resourceapi.ResourceSlice{}: {
				Field: fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, v1alpha1.DriverName),
			},
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{
					namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, peer.LeaseName)},
				},
			},
			&resourceapi.ResourceClaimTemplate{}: {
				Label: labels.SelectorFromSet(labels.Set{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}),
			},
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{
					namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, certs.SecretName)},
				},
			},
		},
	}, nil
}

func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

var _ toolscache.TransformFunc = onlyLabels

// onlyLabels drops what no decision reads of a Node, which a kubelet writes every few minutes, or of a Namespace.
func onlyLabels(object any) (any, error) {
	if metadata, ok := object.(metav1.Object); ok {
		metadata.SetAnnotations(nil)
		metadata.SetManagedFields(nil)
	}
	return object, nil
}
