// SPDX-License-Identifier: Apache-2.0

// Package deviceclass keeps the DeviceClasses that pools need, and removes those that no pool needs any more.
package deviceclass

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/internal/classes"
)

// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses,verbs=get;list;watch;create;update;delete

const (
	// key is the controller's only key: all classes are looked at together.
	key = "classes"
	// nodeDelay gathers the reports of many nodes into one look.
	nodeDelay = 100 * time.Millisecond
)

// Reconciler keeps all DeviceClasses of Sluice.
type Reconciler struct {
	client            client.Client
	extendedResources bool
}

// New makes a reconciler; extendedResources says whether the classes carry extended resource names.
func New(c client.Client, extendedResources bool) *Reconciler {
	return &Reconciler{client: c, extendedResources: extendedResources}
}

// Setup registers the controller.
func Setup(mgr ctrl.Manager, extendedResources bool) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("deviceclass").
		Watches(&resourceapi.DeviceClass{}, watch.At(watch.One(key))).
		Watches(&v1alpha1.GPUPool{}, watch.At(watch.One(key)), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, watch.After(nodeDelay, watch.One(key))).
		Complete(New(mgr.GetClient(), extendedResources))
}

// Reconcile gathers, decides and acts on all classes.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	pools, err := view.Pools(ctx, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	nodes, err := view.GPUNodes(ctx, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	existing, err := view.Classes(ctx, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.act(ctx, classes.Decide(classes.Needs(pools, nodes, r.extendedResources), existing))
}

// act carries out a plan. One class that cannot be written does not keep the others from it. What somebody else changed
// in the meantime comes back as an event of its own.
func (r *Reconciler) act(ctx context.Context, plan classes.Plan) error {
	logger := log.FromContext(ctx)
	var failures []error
	for _, class := range plan.Create {
		err := r.client.Create(ctx, class)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			failures = append(failures, fmt.Errorf("creating device class %s: %w", class.Name, err))
			continue
		}
		logger.Info("Created device class", "class", class.Name, "extendedResource", ptr.Deref(class.Spec.ExtendedResourceName, ""))
	}
	for _, class := range plan.Update {
		err := r.client.Update(ctx, class)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("updating device class %s: %w", class.Name, err))
			continue
		}
		logger.Info("Updated device class", "class", class.Name, "extendedResource", ptr.Deref(class.Spec.ExtendedResourceName, ""))
	}
	for _, class := range plan.Delete {
		err := r.client.Delete(ctx, class, client.Preconditions{UID: &class.UID, ResourceVersion: &class.ResourceVersion})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("removing device class %s: %w", class.Name, err))
			continue
		}
		logger.Info("Removed device class", "class", class.Name)
	}
	return errors.Join(failures...)
}
