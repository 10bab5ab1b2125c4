// SPDX-License-Identifier: Apache-2.0

package count

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/watch"
)

// leaderIn is how long a leader has to count a change, before another replica does: a dead leader's lease lasts a minute,
// and what is freed meanwhile should not be.
const leaderIn = 3 * time.Second

// StandIn counts on the replicas that do not lead, what the leader does not. It moves nothing.
type StandIn struct {
	// Count does it.
	Count *Reconciler
	// Covered says whether this replica leads, or another that answers does.
	Covered func(ctx context.Context) bool
}

var _ reconcile.Reconciler = &StandIn{}

// Setup registers the controller.
func (s *StandIn) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("gpuledger-stand-in").
		Watches(&resourceapi.ResourceClaim{}, watch.After(leaderIn, s.Count.ofNamespace), builder.WithPredicates(watch.AllocationChanged())).
		Watches(&v1alpha1.GPULedger{}, watch.After(leaderIn, itself)).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(s)
	if err != nil {
		return fmt.Errorf("setting up the count of quotas without a leader: %w", err)
	}
	return nil
}

// Reconcile counts where the ledger does not show what the cache shows.
func (s *StandIn) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if s.Covered(ctx) {
		return ctrl.Result{}, nil // every change of the ledger comes here again
	}
	counted, err := s.Count.cached(ctx, request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	domain, err := s.Count.Sight.Domain(ctx, request.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the quotas of ledger %s: %w", request.Name, err)
	}
	if domain == nil {
		return ctrl.Result{}, nil
	}
	now := s.Count.Clock.Now()
	looks, err := s.Count.look(ctx, domain)
	if err != nil {
		return ctrl.Result{}, err
	}
	fresh := counted.Clone()
	recount(fresh, looks, now)
	overdue, next := counted.Overdue(now)
	if len(overdue) > 0 || differs(counted, fresh) {
		err = s.Count.count(ctx, domain)
	}
	if next.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next.Sub(now) + leaderIn}, err
}
