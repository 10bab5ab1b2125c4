// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
)

const (
	// patience is how long a batch is tried: less than a webhook has.
	patience = 8 * time.Second
	// freshFor is how old what is known of a ledger may be for a refusal that nothing was written for.
	freshFor = time.Second
	// jitter is the longest first pause after a conflict. It doubles, up to maxJitter.
	jitter    = 10 * time.Millisecond
	maxJitter = 80 * time.Millisecond
	// giveWay is after how many conflicts a replica leaves the ledger to the leader.
	giveWay = 4
)

// carryOut tries a batch until it is written. Whoever waits is answered exactly once.
func (w *Writer) carryOut(ctx context.Context, ledger string, q *queue, batch []*order) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pause := jitter
	for conflicts := 1; ; conflicts++ {
		answers, err := w.attempt(ctx, ledger, q, batch)
		if err == nil {
			for i, o := range batch {
				o.done <- answers[i]
			}
			return
		}
		// What is known may be what the API server has no more.
		q.known = nil
		if apierrors.IsInvalid(err) && len(batch) > 1 {
			// One of them orders what no ledger can hold, which is not the others' fault.
			for _, o := range batch {
				w.carryOut(ctx, ledger, q, []*order{o})
			}
			return
		}
		failure := ErrTryAgain
		if mayPass(err) && conflicts >= giveWay && !w.leads() {
			failure = ErrContended
		} else if mayPass(err) && w.pause(ctx, pause, err) {
			pause = min(2*pause, maxJitter)
			continue
		}
		for _, o := range batch {
			o.done <- errors.Join(failure, err)
		}
		return
	}
}

// mayPass says whether an error is that another writer came first.
func mayPass(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || errors.Is(err, errStale)
}

// errStale has a batch tried again on a fresh look at the ledger.
var errStale = errors.New("the ledger may have changed")

// pause waits a random time after a conflict, so that two writers do not meet again. Without a conflict there is none.
func (w *Writer) pause(ctx context.Context, longest time.Duration, err error) bool {
	if errors.Is(err, errStale) {
		return ctx.Err() == nil
	}
	timer := w.clock.NewTimer(time.Duration(rand.Int64N(int64(longest)))) //nolint:gosec // it only keeps writers apart
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// attempt carries a batch out on the ledger as it is known, and writes it once. The error says that nothing was written,
// or that it is not known whether.
func (w *Writer) attempt(ctx context.Context, ledger string, q *queue, batch []*order) ([]error, error) {
	if err := w.read(ctx, ledger, q); err != nil {
		return nil, err
	}
	domain, err := w.sight.Domain(ctx, ledger)
	if err != nil {
		return nil, fmt.Errorf("reading the quotas of ledger %s: %w", ledger, err)
	}
	r := &round{domain: domain, now: w.clock.Now()}
	r.ledger = quota.NewLedger(ledger)
	if q.known.object != nil {
		r.ledger = quota.ReadLedger(q.known.object)
	}
	settled, err := w.settle(ctx, r)
	if err != nil {
		return nil, err
	}
	answers, changed := carryOutOn(r, batch)
	if !changed && !settled {
		if w.clock.Since(q.known.at) > freshFor && slices.ContainsFunc(answers, isRefusal) {
			return nil, errStale
		}
		return answers, nil
	}
	return answers, w.write(ctx, q, r.ledger)
}

// carryOutOn does what a batch orders, one after another: each sees what those before it did.
func carryOutOn(r *round, batch []*order) (answers []error, changed bool) {
	answers = make([]error, len(batch))
	for i, o := range batch {
		if !o.live() {
			answers[i] = ErrTryAgain // nobody listens: it must not be charged
			continue
		}
		writes, err := o.do(r)
		answers[i] = err
		changed = changed || writes
	}
	return answers, changed
}

func isRefusal(err error) bool {
	var refusal *quota.Refusal
	return errors.As(err, &refusal)
}

// settle looks at the claims of namespaces in which a reservation has expired that no count has seen: its allocation was
// stored or never will be, and the API server knows which. Where a count keeps up, there is none.
func (w *Writer) settle(ctx context.Context, r *round) (bool, error) {
	namespaces, _ := r.ledger.Overdue(r.now)
	for _, namespace := range namespaces {
		seen, err := w.sight.LookLive(ctx, namespace)
		if err != nil {
			return false, fmt.Errorf("settling reservations of namespace %s: %w", namespace, err)
		}
		var stale *quota.StaleError
		if err := r.ledger.Recount(seen, r.now); err != nil && !errors.As(err, &stale) {
			return false, fmt.Errorf("settling reservations of namespace %s: %w", namespace, err)
		}
	}
	return len(namespaces) > 0, nil
}

// read makes a ledger known.
func (w *Writer) read(ctx context.Context, ledger string, q *queue) error {
	if q.known != nil {
		return nil
	}
	object := &v1alpha1.GPULedger{}
	err := w.live.Get(ctx, client.ObjectKey{Name: ledger}, object)
	switch {
	case apierrors.IsNotFound(err):
		object = nil
	case err != nil:
		return fmt.Errorf("reading ledger %s: %w", ledger, err)
	}
	q.known = &known{object: object, at: w.clock.Now()}
	return nil
}

// write swaps the ledger that is known for another.
func (w *Writer) write(ctx context.Context, q *queue, l *quota.Ledger) error {
	object := &v1alpha1.GPULedger{Spec: l.Spec()}
	object.Name = l.Name
	var err error
	switch empty := len(l.Namespaces) == 0 && len(l.Reservations) == 0; {
	case q.known.object == nil && empty:
		return nil
	case q.known.object == nil:
		object.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}
		err = w.client.Create(ctx, object)
	case empty:
		err = w.remove(ctx, q.known.object)
		object = nil
	default:
		object.ObjectMeta = *q.known.object.ObjectMeta.DeepCopy()
		err = w.client.Update(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("writing ledger %s: %w", l.Name, err)
	}
	q.known = &known{object: object, at: w.clock.Now()}
	return nil
}

func (w *Writer) remove(ctx context.Context, object *v1alpha1.GPULedger) error {
	err := w.client.Delete(ctx, object, client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion})
	return client.IgnoreNotFound(err) //nolint:wrapcheck // the caller says what was done
}
