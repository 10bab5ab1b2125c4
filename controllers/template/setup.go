// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/request"
)

const (
	name = "template"
	// reportedBy names the events' source.
	reportedBy = "sluice-manager"
	// workers is how many templates are kept at a time: in a burst of new ones each is to be there within a second.
	workers = 8
)

// Setup adds the controller to the manager. Of pods it watches the metadata of those that carry a hash: the manager's
// cache selects them by label.
func Setup(mgr manager.Manager, pools PoolReader, now clock.PassiveClock) error {
	reconciler := &Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Pools: pools,
		Recorder: mgr.GetEventRecorder(reportedBy), Clock: now,
	}
	changed := predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	err := builder.ControllerManagedBy(mgr).
		Named(name).
		For(&resourceapi.ResourceClaimTemplate{}).
		WatchesMetadata(podMetadata(), handler.EnqueueRequestsFromMapFunc(templateOf), builder.WithPredicates(changed)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("setting up the template controller: %w", err)
	}
	return nil
}

func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// templateOf is the template whose hash a pod carries.
func templateOf(_ context.Context, pod client.Object) []reconcile.Request {
	hash := pod.GetLabels()[v1alpha1.RequestLabel]
	if !request.IsHash(hash) {
		return nil
	}
	key := types.NamespacedName{Namespace: pod.GetNamespace(), Name: request.TemplateName(hash)}
	return []reconcile.Request{{NamespacedName: key}}
}
