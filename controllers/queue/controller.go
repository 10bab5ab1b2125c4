// SPDX-License-Identifier: Apache-2.0

// Package queue lets the pods that wait for their namespace's quota go, in their order, and tells each where it stands.
package queue

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/controllers/tenants"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=sluice.dev,resources=gpuquotas;gpuledgers;gpupools;gpunodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims;deviceclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Gatherer tells what the pods of a ledger wait for.
type Gatherer interface {
	// Gather reads what belongs to a ledger.
	Gather(ctx context.Context, ledger string, now time.Time) (tenants.State, error)
}

// Reconciler serves the queue of one ledger.
type Reconciler struct {
	// Client writes pods.
	Client client.Client
	// Tenants tells what the pods wait for.
	Tenants Gatherer
	// Recorder writes events.
	Recorder eventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
	// Counts is where the lengths of the queues are kept.
	Counts *Counts

	metrics *metrics
	notes   notes
}

// Reconcile lets go whom there is room for, and tells the others where they stand.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	now := r.Clock.Now()
	state, err := r.Tenants.Gather(ctx, request.Name, now)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gathering what waits for ledger %s: %w", request.Name, err)
	}
	notes := r.notes.take(request.Name, state)
	underWay, waiting := notes.split(state)
	var turns []quota.Turn
	if state.Domain != nil {
		turns = state.Domain.Queue(state.Ledger, tenants.Lines(underWay), tenants.Lines(waiting), now)
	}
	r.count(request.Name, state, turns)
	steps := decide(state, waiting, turns, notes, now)
	if err := r.act(ctx, steps, notes, now); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: steps.again}, nil
}

// count keeps the lengths of the queues.
func (r *Reconciler) count(ledger string, state tenants.State, turns []quota.Turn) {
	lengths := map[string]int32{}
	if state.Domain != nil {
		for _, namespace := range state.Domain.Namespaces() {
			lengths[namespace] = 0
		}
	}
	for i := range turns {
		if !turns[i].Release {
			lengths[turns[i].Pod.Namespace]++
		}
	}
	for i := range state.Apart {
		lengths[state.Apart[i].Object.Namespace]++
	}
	for namespace, length := range lengths {
		r.metrics.length(namespace, length)
	}
	for _, namespace := range r.Counts.set(ledger, lengths) {
		r.metrics.forget(namespace)
	}
}

// act lifts gates first, in order, then writes conditions.
func (r *Reconciler) act(ctx context.Context, steps steps, notes podNotes, now time.Time) error {
	for _, pod := range steps.release {
		if err := r.release(ctx, pod, notes, now); err != nil {
			return err
		}
	}
	for _, word := range steps.tell {
		if err := r.tell(ctx, word, notes, now); err != nil {
			return err
		}
	}
	return nil
}
