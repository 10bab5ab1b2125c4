// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/internal/quota"
)

// MayReach says whether a pod may get devices of Sluice, as far as its claims and templates are known. A gate would only
// hold up a pod that may not.
func (e *Early) MayReach(ctx context.Context, pod *corev1.Pod, namespace string) bool {
	if quota.AsksExtended(pod) {
		return true
	}
	for i := range pod.Spec.ResourceClaims {
		spec, err := e.claimOf(ctx, pod, namespace, &pod.Spec.ResourceClaims[i])
		if err != nil || spec == nil || quota.MayReach(spec, func(name string) *resourceapi.DeviceClass { return e.class(ctx, name) }) {
			return true
		}
	}
	return false
}

// class is a class as the cache has it; nil where it does not.
func (e *Early) class(ctx context.Context, name string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{}
	if err := e.Cache.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		return nil
	}
	return class
}
