// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-gpu/sluice/controllers/admission"
	"github.com/sluice-gpu/sluice/controllers/queue"
	"github.com/sluice-gpu/sluice/controllers/tenants"
)

// setupQueues registers what serves the pods that wait for their quotas. counts is where the lengths of the queues are
// kept for whoever writes the quotas' status.
func setupQueues(mgr ctrl.Manager, o Options, counts *queue.Counts) error {
	source, err := tenants.NewSource(mgr, admission.FactsOf(mgr))
	if err != nil {
		return fmt.Errorf("watching the pods of tenants: %w", err)
	}
	return queue.Setup(mgr, queue.Options{Tenants: source, Counts: counts, Clock: o.Clock, Metrics: o.Metrics})
}
