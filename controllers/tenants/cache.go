// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// NewCache keeps the pods that have no node yet, and of those that concern no GPU only the name. The leader fills it.
func NewCache(mgr ctrl.Manager) (cache.Cache, error) {
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", ""), Transform: slim},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache of pods without a node: %w", err)
	}
	if err := mgr.Add(leaderOnly{pods}); err != nil {
		return nil, fmt.Errorf("adding the cache of pods without a node: %w", err)
	}
	return pods, nil
}

// leaderOnly fills the cache where it is read.
type leaderOnly struct{ cache cache.Cache }

var _ manager.LeaderElectionRunnable = leaderOnly{}

// Start fills the cache until the context ends.
func (l leaderOnly) Start(ctx context.Context) error {
	if err := l.cache.Start(ctx); err != nil {
		return fmt.Errorf("caching pods without a node: %w", err)
	}
	return nil
}

// NeedLeaderElection says that followers do not run it.
func (leaderOnly) NeedLeaderElection() bool { return true }

// slim drops what no decision reads of a pod.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
	}}
	if !quota.Gated(pod) && !quota.MayAsk(pod) {
		return kept, nil
	}
	if request, found := pod.Annotations[v1alpha1.RequestAnnotation]; found {
		kept.Annotations = map[string]string{v1alpha1.RequestAnnotation: request}
	}
	kept.Spec = corev1.PodSpec{
		Priority: pod.Spec.Priority, SchedulingGates: pod.Spec.SchedulingGates, ResourceClaims: pod.Spec.ResourceClaims,
		Containers: limitsOf(pod.Spec.Containers), InitContainers: limitsOf(pod.Spec.InitContainers),
	}
	kept.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Conditions: pod.Status.Conditions,
		ResourceClaimStatuses: pod.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
	}
	return kept, nil
}

func limitsOf(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		kept = append(kept, corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Limits: c.Resources.Limits},
		})
	}
	return kept
}
