// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/sluice-gpu/sluice/controllers/tenants"
)

const (
	// gather is how long changes around a ledger are gathered into one look at its queue.
	gather = 50 * time.Millisecond
	// workers is how many queues are served at a time.
	workers = 4
)

// Options are what the controller needs.
type Options struct {
	// Tenants tells what pods wait for, and when that changes.
	Tenants *tenants.Source
	// Counts is where the lengths of the queues are kept.
	Counts *Counts
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where metrics are registered.
	Metrics prometheus.Registerer
}

// Setup adds the controller to the manager. The leader runs it.
func Setup(mgr ctrl.Manager, o Options) error {
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return err
	}
	reconciler := &Reconciler{
		Client: mgr.GetClient(), Tenants: o.Tenants.Reader, Recorder: mgr.GetEventRecorder("sluice-manager"),
		Clock: o.Clock, Counts: o.Counts, metrics: m,
	}
	built := o.Tenants.Watch(ctrl.NewControllerManagedBy(mgr).Named("queue"), gather).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	if err := built.Complete(reconciler); err != nil {
		return fmt.Errorf("setting up the queue controller: %w", err)
	}
	return nil
}
