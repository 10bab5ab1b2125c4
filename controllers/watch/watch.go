// SPDX-License-Identifier: Apache-2.0

// Package watch holds what the controllers' watches share: which changes matter, and how a burst of them becomes one
// reconciliation.
package watch

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Keys names the objects to reconcile after an event.
type Keys func(context.Context, client.Object) []string

// One always names the same key: for a controller that looks at everything at once.
func One(name string) Keys {
	return func(context.Context, client.Object) []string { return []string{name} }
}

// After enqueues the named cluster-scoped objects a moment after an event. Further events within that moment add
// nothing: the queue keeps the earliest time of each key.
func After(delay time.Duration, keys Keys) handler.EventHandler {
	enqueue := func(ctx context.Context, object client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, name := range keys(ctx, object) {
			request := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
			if delay > 0 {
				queue.AddAfter(request, delay)
			} else {
				queue.Add(request)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, e.ObjectOld, q)
			enqueue(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, e.Object, q)
		},
		// What comes through a channel.
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, e.Object, q)
		},
	}
}

// At enqueues the named cluster-scoped objects at once.
func At(keys Keys) handler.EventHandler { return After(0, keys) }

// AllocationChanged lets through claims that were allocated, freed, or passed on to other pods.
func AllocationChanged() predicate.Predicate {
	allocated := func(object client.Object) bool {
		claim, ok := object.(*resourceapi.ResourceClaim)
		return ok && claim.Status.Allocation != nil
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return allocated(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return allocated(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*resourceapi.ResourceClaim)
			if !ok {
				return false
			}
			after, ok := e.ObjectNew.(*resourceapi.ResourceClaim)
			if !ok {
				return false
			}
			return !apiequality.Semantic.DeepEqual(before.Status.Allocation, after.Status.Allocation) ||
				after.Status.Allocation != nil && !apiequality.Semantic.DeepEqual(before.Status.ReservedFor, after.Status.ReservedFor)
		},
	}
}
