// SPDX-License-Identifier: Apache-2.0

package count

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// takeOver makes sure that a ledger counts every namespace of its domain. One that another ledger judges is taken over:
// first the other stops judging it, then this one begins with what the other knew, then the other forgets it. Whatever
// happens in between, at most one judges. A namespace that none knows is counted as the API server has it.
func (r *Reconciler) takeOver(ctx context.Context, domain *quota.Domain) error {
	var missing []string
	var room int
	known := map[string]bool{}
	err := r.Ledgers.Change(ctx, domain.Ledger, func(l *quota.Ledger, _ time.Time) (bool, error) {
		missing, room = l.Missing(domain), v1alpha1.MaxLedgerNamespaces-len(l.Namespaces)
		for namespace := range l.Namespaces {
			known[namespace] = true
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("reading ledger %s: %w", domain.Ledger, err)
	}
	var failed error
	for _, namespace := range missing {
		if !known[namespace] {
			if room--; room < 0 {
				failed = errors.Join(failed, fmt.Errorf("namespace %s is not counted: ledger %s has %d namespaces, and a cohort has no more",
					namespace, domain.Ledger, v1alpha1.MaxLedgerNamespaces))
				continue
			}
		}
		failed = errors.Join(failed, r.takeOverOne(ctx, domain.Ledger, namespace))
	}
	return failed
}

func (r *Reconciler) takeOverOne(ctx context.Context, name, namespace string) error {
	r.moving.Lock()
	defer r.moving.Unlock()
	others, err := r.holders(ctx, name, namespace)
	if err != nil {
		return err
	}
	left := make([]*quota.Ledger, 0, len(others))
	for _, other := range others {
		ledger, err := r.leave(ctx, other, namespace, name)
		if err != nil {
			return err
		}
		left = append(left, ledger)
	}
	if err := r.join(ctx, name, namespace, left); err != nil {
		return err
	}
	for _, other := range others {
		err := r.Ledgers.Change(ctx, other, func(l *quota.Ledger, _ time.Time) (bool, error) {
			if l.Namespaces[namespace].MovedTo != name {
				return false, nil
			}
			l.Forget(namespace)
			return true, nil
		})
		if err != nil {
			return fmt.Errorf("forgetting namespace %s in ledger %s: %w", namespace, other, err)
		}
	}
	return r.countLive(ctx, name, namespace)
}

// holders are the other ledgers that know a namespace, as the API server has them.
func (r *Reconciler) holders(ctx context.Context, name, namespace string) ([]string, error) {
	ledgers := &v1alpha1.GPULedgerList{}
	if err := r.Live.List(ctx, ledgers); err != nil {
		return nil, fmt.Errorf("listing ledgers: %w", err)
	}
	var others []string
	for i := range ledgers.Items {
		if object := &ledgers.Items[i]; object.Name != name && knows(object, namespace) {
			others = append(others, object.Name)
		}
	}
	return others, nil
}

func knows(object *v1alpha1.GPULedger, namespace string) bool {
	_, known := quota.ReadLedger(object).Namespaces[namespace]
	return known
}

// leave ends judging a namespace in a ledger and returns what that knew.
func (r *Reconciler) leave(ctx context.Context, name, namespace, to string) (*quota.Ledger, error) {
	var left *quota.Ledger
	err := r.Ledgers.Change(ctx, name, func(l *quota.Ledger, _ time.Time) (bool, error) {
		entry, known := l.Namespaces[namespace]
		if !known {
			left = quota.NewLedger(name)
			return false, nil
		}
		l.Leave(namespace, to)
		left = l.Clone()
		return entry.MovedTo != to, nil
	})
	if err != nil {
		return nil, fmt.Errorf("moving namespace %s from ledger %s: %w", namespace, name, err)
	}
	return left, nil
}

// join begins judging a namespace with what others knew.
func (r *Reconciler) join(ctx context.Context, name, namespace string, left []*quota.Ledger) error {
	err := r.Ledgers.Change(ctx, name, func(l *quota.Ledger, _ time.Time) (bool, error) {
		before := l.Clone()
		for _, other := range left {
			if _, knew := other.Namespaces[namespace]; knew {
				l.Join(namespace, other)
			}
		}
		if entry, known := l.Namespaces[namespace]; known && entry.MovedTo != "" {
			l.Join(namespace, before) // it was to go, and nobody took it
		}
		return differs(before, l), nil
	})
	if err != nil {
		return fmt.Errorf("moving namespace %s to ledger %s: %w", namespace, name, err)
	}
	return nil
}
