// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestABurstOfEventsIsOneReconciliation(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: clock},
	)
	defer queue.ShutDown()
	handler := watch.After(time.Second, watch.One("all"))
	node := builders.MakeGPUNode("n", 1).Obj()
	handler.Create(t.Context(), event.CreateEvent{Object: node}, queue)
	for range 100 {
		handler.Update(t.Context(), event.UpdateEvent{ObjectOld: node, ObjectNew: node}, queue)
	}
	handler.Delete(t.Context(), event.DeleteEvent{Object: node}, queue)
	if got := queue.Len(); got != 0 {
		t.Fatalf("want nothing before the moment has passed, got %d", got)
	}
	for clock.Waiters() < 2 { // the queue's goroutine has taken the events in
		if t.Context().Err() != nil {
			t.Fatal("the queue does not wait")
		}
	}
	clock.Step(time.Second)
	request, _ := queue.Get()
	if request.Name != "all" {
		t.Errorf("want the one key, got %v", request)
	}
	queue.Done(request)
	if got := queue.Len(); got != 0 {
		t.Errorf("want one reconciliation, got %d more", got)
	}
}

func TestAnUpdateReachesBothSides(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	names := func(_ context.Context, o client.Object) []string { return []string{o.GetName()} }
	watch.At(names).Update(t.Context(), event.UpdateEvent{
		ObjectOld: builders.MakeGPUNode("before", 1).Obj(), ObjectNew: builders.MakeGPUNode("after", 1).Obj(),
	}, queue)
	for _, want := range []string{"before", "after"} {
		if got, _ := queue.Get(); got.Name != want {
			t.Errorf("want %s, got %s", want, got.Name)
		}
	}
}

func TestEveryKindOfEventReachesTheController(t *testing.T) {
	node := builders.MakeGPUNode("n", 1).Obj()
	type queueType = workqueue.TypedRateLimitingInterface[reconcile.Request]
	handler := watch.At(func(_ context.Context, object client.Object) []string { return []string{object.GetName()} })
	for name, tell := range map[string]func(queueType){
		"created":                 func(q queueType) { handler.Create(t.Context(), event.CreateEvent{Object: node}, q) },
		"changed":                 func(q queueType) { handler.Update(t.Context(), event.UpdateEvent{ObjectOld: node, ObjectNew: node}, q) },
		"deleted":                 func(q queueType) { handler.Delete(t.Context(), event.DeleteEvent{Object: node}, q) },
		"named through a channel": func(q queueType) { handler.Generic(t.Context(), event.GenericEvent{Object: node}, q) },
	} {
		t.Run(name, func(t *testing.T) {
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			tell(queue)
			if queue.Len() != 1 {
				t.Fatalf("%d requests, want one", queue.Len())
			}
			if got, _ := queue.Get(); got.Name != "n" {
				t.Errorf("the request is for %s, want n", got.Name)
			}
		})
	}
}

func TestAllocationChanged(t *testing.T) {
	held := builders.Allocated("tenant", "n", "gpu-0", "1Gi")
	free := held.DeepCopy()
	free.Status = resourceapi.ResourceClaimStatus{}
	passedOn := held.DeepCopy()
	passedOn.Status.ReservedFor = nil
	labelled := held.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	tests := []struct {
		name          string
		before, after *resourceapi.ResourceClaim
		want          bool
	}{
		{name: "a claim that is allocated counts", before: free, after: held, want: true},
		{name: "a claim that is released counts", before: held, after: free, want: true},
		{name: "a claim that is passed on counts", before: held, after: passedOn, want: true},
		{name: "a label does not count", before: held, after: labelled},
		{name: "a claim that waits does not count", before: free, after: free},
	}
	p := watch.AllocationChanged()
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := p.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
	if !p.Create(event.CreateEvent{Object: held}) || p.Create(event.CreateEvent{Object: free}) {
		t.Error("of new claims only allocated ones count")
	}
	if !p.Delete(event.DeleteEvent{Object: held}) || p.Delete(event.DeleteEvent{Object: free}) {
		t.Error("of deleted claims only allocated ones count")
	}
}
