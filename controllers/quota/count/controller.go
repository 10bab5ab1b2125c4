// SPDX-License-Identifier: Apache-2.0

// Package count keeps what ledgers count true: it counts the namespaces of new quotas, counts again what allocated claims
// hold, and moves namespaces from one ledger to another when their quotas join or leave a cohort. The leader runs it.
package count

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// Ledgers changes ledgers.
type Ledgers interface {
	Change(ctx context.Context, name string, change ledger.Change) error
}

// Sight sees quotas and claims.
type Sight interface {
	Quotas(ctx context.Context) ([]v1alpha1.GPUQuota, error)
	Domain(ctx context.Context, ledger string) (*quota.Domain, error)
	LookLive(ctx context.Context, namespace string) (quota.Seen, error)
	LookCached(ctx context.Context, version, namespace string) (quota.Seen, error)
}

// Reconciler counts the namespaces of one ledger.
type Reconciler struct {
	// Cache is the manager's cache.
	Cache client.Reader
	// Live asks the API server.
	Live client.Reader
	// Ledgers changes ledgers.
	Ledgers Ledgers
	// Sight sees quotas and claims.
	Sight Sight
	// Reached is the version that the cache of claims has certainly reached; "" where nothing is known.
	Reached func() string
	// Clock tells the time.
	Clock clock.PassiveClock

	moving sync.Mutex
}

var _ reconcile.Reconciler = &Reconciler{}

// Reconcile lets namespaces go that belong elsewhere, takes those over that belong here, and counts.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	again, err := r.settle(ctx, request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	domain, err := r.Sight.Domain(ctx, request.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the quotas of ledger %s: %w", request.Name, err)
	}
	if domain == nil {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	// What is counted already stays true also where a namespace cannot be taken over.
	return ctrl.Result{RequeueAfter: again}, errors.Join(r.takeOver(ctx, domain), r.count(ctx, domain))
}

// settle forgets namespaces that are judged elsewhere by now, or not at all, and says when a reservation ends next.
func (r *Reconciler) settle(ctx context.Context, name string) (time.Duration, error) {
	where, err := r.ledgerOf(ctx)
	if err != nil {
		return 0, err
	}
	taken, err := r.taken(ctx, name)
	if err != nil {
		return 0, err
	}
	var again time.Duration
	err = r.Ledgers.Change(ctx, name, func(l *quota.Ledger, now time.Time) (bool, error) {
		again = 0
		if _, next := l.Overdue(now); !next.IsZero() {
			again = next.Sub(now) + time.Second
		}
		return forget(l, where, taken), nil
	})
	if err != nil {
		return 0, fmt.Errorf("settling ledger %s: %w", name, err)
	}
	return again, nil
}

// forget drops namespaces that have no quota any more, once nothing is under way in them, and those that moved to a ledger
// which has taken them over.
func forget(l *quota.Ledger, where func(namespace string) string, taken map[string]bool) bool {
	held := map[string]bool{}
	for _, reservation := range l.Reservations {
		held[reservation.Namespace] = true
	}
	forgot := false
	for namespace, entry := range l.Namespaces {
		ledger := where(namespace)
		ended := ledger == "" && !held[namespace]
		if ended || entry.MovedTo != "" && ledger == entry.MovedTo && taken[namespace] {
			l.Forget(namespace)
			forgot = true
		}
	}
	return forgot
}

// taken are the namespaces that moved away from a ledger and are judged by another, as the cache has them.
func (r *Reconciler) taken(ctx context.Context, name string) (map[string]bool, error) {
	from, err := r.cached(ctx, name)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for namespace, entry := range from.Namespaces {
		if entry.MovedTo == "" {
			continue
		}
		to, err := r.cached(ctx, entry.MovedTo)
		if err != nil {
			return nil, err
		}
		judged := to.Namespaces[namespace]
		taken[namespace] = judged.Version != "" && judged.MovedTo == ""
	}
	return taken, nil
}

// cached is a ledger as the cache has it; an empty one where there is none.
func (r *Reconciler) cached(ctx context.Context, name string) (*quota.Ledger, error) {
	object := &v1alpha1.GPULedger{}
	err := r.Cache.Get(ctx, client.ObjectKey{Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return quota.NewLedger(name), nil
	case err != nil:
		return nil, fmt.Errorf("reading ledger %s: %w", name, err)
	}
	return quota.ReadLedger(object), nil
}

// ledgerOf tells the ledger of a namespace; "" where it has no quota.
func (r *Reconciler) ledgerOf(ctx context.Context) (func(namespace string) string, error) {
	quotas, err := r.Sight.Quotas(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the quotas: %w", err)
	}
	sorted := sight.ByNamespace(quotas)
	return func(namespace string) string { return quota.LedgerOf(namespace, sorted[namespace]) }, nil
}

// look looks at the namespaces of a domain in the cache; nothing where it is not known how far that has come.
func (r *Reconciler) look(ctx context.Context, domain *quota.Domain) ([]quota.Seen, error) {
	version := r.Reached()
	if version == "" {
		return nil, nil
	}
	var looks []quota.Seen
	for _, namespace := range domain.Namespaces() {
		seen, err := r.Sight.LookCached(ctx, version, namespace)
		if err != nil {
			return nil, fmt.Errorf("counting for ledger %s: %w", domain.Ledger, err)
		}
		looks = append(looks, seen)
	}
	return looks, nil
}

// count counts the namespaces of a domain from the cache. Where the cache is behind the last count and shows something
// else, the API server is asked.
func (r *Reconciler) count(ctx context.Context, domain *quota.Domain) error {
	looks, err := r.look(ctx, domain)
	if err != nil {
		return err
	}
	var behind []string
	err = r.Ledgers.Change(ctx, domain.Ledger, func(l *quota.Ledger, now time.Time) (bool, error) {
		before := l.Clone()
		behind = recount(l, looks, now)
		return differs(before, l), nil
	})
	if err != nil {
		return fmt.Errorf("counting for ledger %s: %w", domain.Ledger, err)
	}
	for _, namespace := range behind {
		if err := r.countLive(ctx, domain.Ledger, namespace); err != nil {
			return err
		}
	}
	return nil
}

// recount takes looks over. It names the namespaces for which a look is too old, and shows something else than what
// is counted.
func recount(l *quota.Ledger, looks []quota.Seen, now time.Time) []string {
	var behind []string
	for _, seen := range looks {
		name := seen.Namespaces[0]
		if l.Namespaces[name].Version == "" {
			continue // takeOver counts it first
		}
		fresh := quota.NewLedger(l.Name)
		_ = fresh.Recount(seen, now) // a ledger that has counted nothing takes any look
		if l.Recount(seen, now) == nil {
			continue
		}
		shown, counted := fresh.Namespaces[name], l.Namespaces[name]
		if counted.Unknown > 0 || !same(shown.Counted, counted.Counted) {
			behind = append(behind, name)
		}
	}
	return behind
}

// countLive counts a namespace as the API server has it.
func (r *Reconciler) countLive(ctx context.Context, name, namespace string) error {
	began := r.Clock.Now()
	seen, err := r.Sight.LookLive(ctx, namespace)
	if err != nil {
		return fmt.Errorf("counting namespace %s: %w", namespace, err)
	}
	err = r.Ledgers.Change(ctx, name, func(l *quota.Ledger, _ time.Time) (bool, error) {
		before := l.Clone()
		_ = l.Recount(seen, began) // whoever counted from a newer list was first
		return differs(before, l), nil
	})
	if err != nil {
		return fmt.Errorf("counting namespace %s: %w", namespace, err)
	}
	return nil
}

// differs says whether a ledger has to be written. That something was counted again with the same result is not worth it.
func differs(before, after *quota.Ledger) bool {
	old, changed := before.Spec(), after.Spec()
	if len(old.Namespaces) != len(changed.Namespaces) {
		return true
	}
	for i := range old.Namespaces {
		if old.Namespaces[i].CountedVersion != "" && changed.Namespaces[i].CountedVersion != "" {
			old.Namespaces[i].CountedVersion = changed.Namespaces[i].CountedVersion
		}
	}
	return !apiequality.Semantic.DeepEqual(old, changed)
}

// same says whether charges are equal.
func same(a, b quota.Charges) bool {
	within := func(a, b quota.Charges) bool {
		for pool, amounts := range a {
			for name, value := range amounts {
				if b[pool][name] != value {
					return false
				}
			}
		}
		return true
	}
	return within(a, b) && within(b, a)
}
