// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-gpu/sluice/controllers/admission"
	"github.com/sluice-gpu/sluice/controllers/queue"
	"github.com/sluice-gpu/sluice/controllers/reclaim"
	"github.com/sluice-gpu/sluice/controllers/tenants"
)

// setupQueues registers what serves the pods that wait for their quotas, and what takes back for them what was lent.
func setupQueues(mgr ctrl.Manager, o Options) error {
	source, err := tenants.NewSource(mgr, admission.FactsOf(mgr))
	if err != nil {
		return fmt.Errorf("watching the pods of tenants: %w", err)
	}
	if err := queue.Setup(mgr, queue.Options{Tenants: source, Counts: o.Queues, Clock: o.Clock, Metrics: o.Metrics}); err != nil {
		return err
	}
	return reclaim.Setup(mgr, reclaim.Options{
		Tenants: source, Ledgers: o.Quota.Ledgers, Blocked: o.Blocked, Clock: o.Clock, Metrics: o.Metrics,
	})
}
