// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/controllers/tenants"
)

const (
	// gather is how long changes around a ledger are gathered into one plan, and so at most one write of what is wanted.
	gather = time.Second
	// workers is how many ledgers are served at a time.
	workers = 4
)

// Options are what the controller needs.
type Options struct {
	// Tenants tells what pods wait for, and when that changes.
	Tenants *tenants.Source
	// Ledgers change ledgers.
	Ledgers Ledgers
	// Blocked remembers what disruption budgets forbid.
	Blocked *Blocked
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
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Tenants: o.Tenants.Reader,
		Observer: sight.Reader{Cache: mgr.GetClient(), Live: mgr.GetAPIReader()},
		Ledgers:  o.Ledgers, Recorder: mgr.GetEventRecorder("sluice-manager"), Clock: o.Clock, Blocked: o.Blocked, metrics: m,
	}
	built := o.Tenants.Watch(ctrl.NewControllerManagedBy(mgr).Named("reclaim"), gather).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	if err := built.Complete(reconciler); err != nil {
		return fmt.Errorf("setting up the reclaim controller: %w", err)
	}
	return nil
}
