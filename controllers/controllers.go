// SPDX-License-Identifier: Apache-2.0

// Package controllers lists everything that runs in the manager.
package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/admission"
	"github.com/sluice-gpu/sluice/controllers/deviceclass"
	"github.com/sluice-gpu/sluice/controllers/gpunode"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/controllers/pool"
	"github.com/sluice-gpu/sluice/controllers/queue"
	"github.com/sluice-gpu/sluice/controllers/quota"
	"github.com/sluice-gpu/sluice/controllers/reclaim"
	"github.com/sluice-gpu/sluice/controllers/rollout"
	"github.com/sluice-gpu/sluice/controllers/template"
	"github.com/sluice-gpu/sluice/controllers/unseen"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/controllers/violations"
)

// Options are what the controllers need to know.
type Options struct {
	// ExtendedResources gives the classes of MIG instances and whole GPUs their nvidia.com/... names.
	ExtendedResources bool
	// DrainSettle is how long a published taint must stand before a GPU changes hands.
	DrainSettle time.Duration
	// Quota is what holds quotas in this replica.
	Quota *quota.Parts
	// Queues are the lengths of the queues of pods that wait for quotas.
	Queues *queue.Counts
	// Blocked is what keeps pods from being evicted that hold what was lent.
	Blocked *reclaim.Blocked
	// ScheduleJitter is the time over which the nodes of a pool follow its schedules, one after the other.
	ScheduleJitter time.Duration
	// Clock tells the time.
	Clock clock.WithTicker
	// Metrics is where metrics are registered.
	Metrics prometheus.Registerer
}

// Scheme knows every kind that the manager reads or writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// SetupAll registers every index and every controller.
func SetupAll(ctx context.Context, mgr ctrl.Manager, o Options) error {
	book := orders.NewBook()
	steps := []struct {
		name  string
		setup func() error
	}{
		{"indexes", func() error { return view.Index(ctx, mgr.GetFieldIndexer()) }},
		{"gpunode", func() error {
			return gpunode.Setup(mgr, gpunode.Options{
				DrainSettle: o.DrainSettle, Book: book, ScheduleJitter: o.ScheduleJitter, Clock: o.Clock,
			})
		}},
		{"rollout", func() error {
			return rollout.Setup(mgr, rollout.Options{Book: book, Jitter: o.ScheduleJitter, Clock: o.Clock, Metrics: o.Metrics})
		}},
		{"pool", func() error {
			return pool.Setup(mgr, pool.Options{
				ExtendedResources: o.ExtendedResources, Book: book, ScheduleJitter: o.ScheduleJitter, Clock: o.Clock, Metrics: o.Metrics,
			})
		}},
		{"violations", func() error { return violations.Setup(mgr, o.Metrics) }},
		{"unseen", func() error { return unseen.Setup(mgr, o.Clock) }},
		{"deviceclass", func() error { return deviceclass.Setup(mgr, o.ExtendedResources) }},
		{"template", func() error { return template.Setup(mgr, admission.FactsOf(mgr), o.Clock) }},
		{"quota", func() error { return o.Quota.Setup(ctx, mgr) }},
		{"queue", func() error { return setupQueues(mgr, o) }},
	}
	for _, step := range steps {
		if err := step.setup(); err != nil {
			return fmt.Errorf("setting up %s: %w", step.name, err)
		}
	}
	return nil
}

// SetupWebhooks registers every webhook. The webhook server must have a certificate by then: it starts with the first.
func SetupWebhooks(ctx context.Context, mgr ctrl.Manager, o Options) error {
	early := admission.Options{ExtendedResources: o.ExtendedResources, Counter: o.Quota.Notes, Clock: o.Clock}
	if err := admission.Setup(ctx, mgr, early); err != nil {
		return fmt.Errorf("setting up admission: %w", err)
	}
	if err := o.Quota.SetupWebhooks(ctx, mgr); err != nil {
		return fmt.Errorf("setting up the judges of quotas: %w", err)
	}
	return nil
}
