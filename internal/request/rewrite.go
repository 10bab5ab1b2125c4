// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Rewrite points a pod's asking containers at the claim that serves them and removes the limits that said so. Doing it
// again changes nothing.
func Rewrite(pod *corev1.Pod, resolution *Resolution) error {
	encoded, err := resolution.Canonical.Encode()
	if err != nil {
		return err
	}
	hash := Hash(encoded)
	setClaim(pod, TemplateName(hash))
	for _, container := range inOrder(pod) {
		request, asks := resolution.RequestOf[container.spec.Name]
		if !asks {
			continue
		}
		resources := &container.spec.Resources
		resources.Limits = without(resources.Limits)
		resources.Requests = without(resources.Requests)
		resources.Claims = slices.DeleteFunc(resources.Claims, func(c corev1.ResourceClaim) bool { return c.Name == ClaimName })
		resources.Claims = append(resources.Claims, corev1.ResourceClaim{Name: ClaimName, Request: request})
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.RequestAnnotation] = encoded
	setHash(pod, hash)
	return nil
}

// Tidy is for a pod that asks for nothing: what only admission may write is removed, unless it belongs to a claim that is
// there, as in a copy of a rewritten pod.
func Tidy(pod *corev1.Pod, asks *Asks) {
	if asks.Kept {
		setHash(pod, Hash(pod.Annotations[v1alpha1.RequestAnnotation]))
		return
	}
	delete(pod.Annotations, v1alpha1.RequestAnnotation)
	delete(pod.Labels, v1alpha1.RequestLabel)
}

func setHash(pod *corev1.Pod, hash string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.RequestLabel] = hash
}

func setClaim(pod *corev1.Pod, template string) {
	i := slices.IndexFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == ClaimName })
	if i < 0 {
		i = len(pod.Spec.ResourceClaims)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{})
	}
	pod.Spec.ResourceClaims[i] = corev1.PodResourceClaim{Name: ClaimName, ResourceClaimTemplateName: &template}
}

// without is a list without the entries of Sluice; nil where nothing else is in it.
func without(list corev1.ResourceList) corev1.ResourceList {
	kept := corev1.ResourceList{}
	for name, quantity := range list {
		if !strings.HasPrefix(string(name), resourcePrefix) {
			kept[name] = quantity
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
