// SPDX-License-Identifier: Apache-2.0

// Package reclaim takes back what namespaces of a cohort have borrowed when its owner needs it: it evicts borrowed pods
// through the Eviction API, so that disruption budgets hold, and keeps what is waited for from being borrowed again.
package reclaim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/controllers/tenants"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=sluice.dev,resources=gpupools,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// again is when a ledger is looked at again while a guarantee is not met.
const again = 5 * time.Second

// Gatherer tells what the pods of a ledger wait for.
type Gatherer interface {
	// Gather reads what belongs to a ledger.
	Gather(ctx context.Context, ledger string, now time.Time) (tenants.State, error)
}

// Ledgers change ledgers.
type Ledgers interface {
	// Change changes a ledger by compare and swap.
	Change(ctx context.Context, name string, change ledger.Change) error
}

// Observer sees claims and what they cost.
type Observer interface {
	// LookCached looks at the claims of a namespace as the cache has them.
	LookCached(ctx context.Context, version, namespace string) (quota.Seen, error)
}

// Reconciler meets the guarantees of one ledger.
type Reconciler struct {
	// Client reads claims and pools from the cache and evicts pods.
	Client client.Client
	// Live reads pods from the API server.
	Live client.Reader
	// Tenants tells what pods wait for.
	Tenants Gatherer
	// Observer tells what claims cost.
	Observer Observer
	// Ledgers keep what is waited for from being borrowed.
	Ledgers Ledgers
	// Recorder writes events.
	Recorder eventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
	// Blocked remembers what disruption budgets forbid.
	Blocked *Blocked

	metrics *metrics
}

// Reconcile plans who gives back what, keeps it from being borrowed again, and evicts.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	now := r.Clock.Now()
	state, err := r.Tenants.Gather(ctx, request.Name, now)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gathering what waits for ledger %s: %w", request.Name, err)
	}
	if state.Domain == nil || len(state.Ledger.Namespaces) == 0 {
		r.Blocked.retain(request.Name, nil)
		return ctrl.Result{}, nil
	}
	terms, err := r.terms(ctx, state.Domain)
	if err != nil {
		return ctrl.Result{}, err
	}
	holders, err := r.lookAtBorrowers(ctx, state, terms, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Blocked.retain(request.Name, holders)
	waiting := lines(state)
	plan := state.Domain.Reclaim(state.Ledger, r.Blocked.without(request.Name, holders, now), waiting, now, terms.grace)
	if err := r.want(ctx, request.Name, state.Ledger, plan, terms.grace); err != nil {
		return ctrl.Result{}, err
	}
	if len(plan.Waiting) == 0 {
		return ctrl.Result{}, nil
	}
	retry, err := r.evict(ctx, request.Name, plan, terms, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: retry}, nil
}

// lines are all pods that wait, gated or not, as decisions see them.
func lines(state tenants.State) []quota.Pod {
	return slices.Concat(tenants.Lines(state.Waiting), tenants.Lines(state.UnderWay))
}

// lookAtBorrowers looks at what is held by namespaces that have borrowed, if anybody waits within a guarantee.
func (r *Reconciler) lookAtBorrowers(ctx context.Context, state tenants.State, t terms, now time.Time) ([]quota.Holder, error) {
	waiting := lines(state)
	if len(waiting) == 0 || len(state.Domain.Reclaim(state.Ledger, nil, waiting, now, t.grace).Waiting) == 0 {
		return nil, nil
	}
	borrowers := map[string]bool{}
	for name, standing := range state.Domain.Standings(state.Ledger) {
		if !standing.Borrowed.Zero() {
			borrowers[name.Namespace] = true
		}
	}
	var holders []quota.Holder
	for _, namespace := range slices.Sorted(maps.Keys(borrowers)) {
		seen, err := r.look(ctx, namespace)
		if err != nil {
			return nil, err
		}
		holders = append(holders, seen.holders(state.Ledger.Namespaces[namespace], now.Add(t.grace+slack))...)
	}
	return holders, nil
}

// want writes what is waited for within guarantees to the ledger, where it has changed.
func (r *Reconciler) want(ctx context.Context, name string, before *quota.Ledger, plan quota.Plan, grace time.Duration) error {
	if !differs(before, plan, grace) {
		return nil
	}
	err := r.Ledgers.Change(ctx, name, func(l *quota.Ledger, _ time.Time) (bool, error) {
		if !differs(l, plan, grace) {
			return false, nil
		}
		for namespace := range l.Namespaces {
			l.Want(namespace, plan.Wanted[namespace])
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("keeping what is waited for from being borrowed: %w", err)
	}
	return nil
}

// differs says whether a ledger keeps something else than is waited for. That a precedence lasts a little longer is not
// worth a write.
func differs(l *quota.Ledger, plan quota.Plan, grace time.Duration) bool {
	for namespace := range l.Namespaces {
		have, want := l.Namespaces[namespace].Wanted, plan.Wanted[namespace]
		switch {
		case have == nil && want == nil:
		case have == nil || want == nil, !have.Since.Equal(want.Since), want.Until.Sub(have.Until) > grace/2,
			!apiequality.Semantic.DeepEqual(trim(have.Charges), trim(want.Charges)):
			return true
		}
	}
	return false
}

// trim leaves out what a ledger does not keep.
func trim(charges quota.Charges) quota.Charges {
	kept := charges.Clone()
	for pool, amounts := range kept {
		maps.DeleteFunc(amounts, func(_ string, value int64) bool { return value == 0 })
		if len(amounts) == 0 {
			delete(kept, pool)
		}
	}
	return kept
}
