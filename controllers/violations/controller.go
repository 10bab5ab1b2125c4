// SPDX-License-Identifier: Apache-2.0

// Package violations evicts pods whose shares hold more memory than they may, or are used past the library, where the pool
// says so. Node agents find them and evict nobody.
package violations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/eviction"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/violation"
)

// +kubebuilder:rbac:groups=sluice.dev,resources=gpunodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// retry is how soon it is looked again while a pod that is to leave is there.
	retry = 10 * time.Second
	// slack is how far the clocks of a node and of the API server may be apart.
	slack = 10 * time.Second
)

// Reconciler evicts the pods of one node.
type Reconciler struct {
	client  client.Client
	live    client.Reader
	events  eventRecorder
	metrics *metrics
	// told are the pods whose evictions were said to be blocked, by UID, until they are gone. One reconciliation at a time
	// uses it.
	told map[string]map[string]bool
}

// New makes a reconciler. The client reads from the cache, live from the API server.
func New(c client.Client, live client.Reader, events eventRecorder, registerer prometheus.Registerer) (*Reconciler, error) {
	m, err := newMetrics(registerer)
	if err != nil {
		return nil, err
	}
	return &Reconciler{client: c, live: live, events: events, metrics: m, told: map[string]map[string]bool{}}, nil
}

// Setup registers the controller.
func Setup(mgr ctrl.Manager, registerer prometheus.Registerer) error {
	r, err := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("sluice-manager"), registerer)
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("violations").
		For(&v1alpha1.GPUNode{}, builder.WithPredicates(violated())).
		Complete(r)
}

// violated lets through nodes whose violations, or what follows from them, have changed.
func violated() predicate.Predicate {
	of := func(object client.Object) []v1alpha1.Violation {
		node, ok := object.(*v1alpha1.GPUNode)
		if !ok {
			return nil
		}
		return node.Status.Violations
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return len(of(e.Object)) > 0 },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !apiequality.Semantic.DeepEqual(of(e.ObjectOld), of(e.ObjectNew)) ||
				(len(of(e.ObjectNew)) > 0 && e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration())
		},
	}
}

// Reconcile evicts the pods that have to leave a node.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	node := &v1alpha1.GPUNode{}
	if err := r.client.Get(ctx, request.NamespacedName, node); apierrors.IsNotFound(err) {
		delete(r.told, request.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading GPUNode %s: %w", request.Name, err)
	}
	claims := &resourceapi.ResourceClaimList{}
	if len(node.Status.Violations) > 0 {
		err := r.client.List(ctx, claims, client.MatchingFields{view.ClaimsByNode: node.Name}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("listing the claims on node %s: %w", node.Name, err)
		}
	}
	told := map[string]bool{}
	var failed []error
	again := ctrl.Result{}
	for _, e := range violation.Evictions(node, claims.Items) {
		there, err := r.evict(ctx, node, e, told)
		failed = append(failed, err)
		if there {
			again.RequeueAfter = retry
		}
	}
	r.told[node.Name] = told
	return again, errors.Join(failed...)
}

// evict asks for the eviction of a pod, and says whether it is still there.
func (r *Reconciler) evict(ctx context.Context, node *v1alpha1.GPUNode, e violation.Eviction, told map[string]bool) (bool, error) {
	pod := &corev1.Pod{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Pod}, pod); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading pod %s/%s before its eviction: %w", e.Namespace, e.Pod, err)
	}
	if !leaves(pod, node, e) {
		return false, nil
	}
	why, err := eviction.Ask(ctx, r.client, pod, metav1.DeleteOptions{})
	if err != nil {
		return true, err //nolint:wrapcheck // it says which pod
	}
	if why != "" {
		told[string(pod.UID)] = true
		r.metrics.count(e.Namespace, resultBlocked)
		if !r.told[node.Name][string(pod.UID)] {
			r.isBlocked(pod, e, why)
		}
		return true, nil
	}
	r.metrics.count(e.Namespace, resultGranted)
	r.wasEvicted(pod, node, e)
	return true, nil
}

// leaves is true of a pod that runs on the node and was there when the violation was found: one that came later is not what was
// seen, as where the node's agent is away and its report is old.
func leaves(pod *corev1.Pod, node *v1alpha1.GPUNode, e violation.Eviction) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return pod.UID == e.UID && pod.Spec.NodeName == node.Name && !ended && pod.DeletionTimestamp == nil &&
		e.Violation.Since != nil && !pod.CreationTimestamp.After(e.Violation.Since.Add(slack))
}
