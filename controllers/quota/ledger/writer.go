// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// +kubebuilder:rbac:groups=sluice.dev,resources=gpuledgers,verbs=get;list;watch;create;update;delete

// ErrTryAgain says that nothing was decided, so the same may be asked again.
var ErrTryAgain = errors.New("the quota's ledger could not be written at the moment: this is tried again")

// ErrContended says that another replica writes the ledger all the time: the leader, which had better be asked.
var ErrContended = fmt.Errorf("%w: another replica writes it", ErrTryAgain)

// Sight is what the writer needs to see.
type Sight interface {
	// Domain is the domain of a ledger; nil where no quota belongs to it.
	Domain(ctx context.Context, ledger string) (*quota.Domain, error)
	// LookLive looks at the claims of a namespace as the API server has them.
	LookLive(ctx context.Context, namespace string) (quota.Seen, error)
}

// Change changes a ledger in place and says whether it has to be written. It may be called again on another state of
// the ledger, and then its last answer holds. An error leaves the ledger as it was.
type Change func(l *quota.Ledger, now time.Time) (bool, error)

// Options are what a writer needs.
type Options struct {
	// Client writes ledgers.
	Client client.Client
	// Live reads ledgers from the API server.
	Live client.Reader
	// Sight sees quotas and claims.
	Sight Sight
	// Leads says whether this replica writes for all. Others give way.
	Leads func() bool
	// Clock tells the time.
	Clock clock.WithTicker
}

// Writer writes ledgers, for one replica.
type Writer struct {
	client client.Client
	live   client.Reader
	sight  Sight
	leads  func() bool
	clock  clock.WithTicker

	mu     sync.Mutex
	queues map[string]*queue
}

// New makes a writer.
func New(o Options) *Writer {
	return &Writer{client: o.Client, live: o.Live, sight: o.Sight, leads: o.Leads, clock: o.Clock, queues: map[string]*queue{}}
}

// queue is what waits to be written to one ledger, and what is known of the ledger. Only the goroutine that serves it
// touches known.
type queue struct {
	waiting []*order
	served  bool
	known   *known
}

// known is a ledger as it was last read or written, nil until it was; object is nil where there is none.
type known struct {
	object *v1alpha1.GPULedger
	at     time.Time
}

// order is one thing to do with a ledger. One that fails has changed nothing.
type order struct {
	live func() bool // false once nobody waits for the answer any more
	do   func(r *round) (bool, error)
	done chan error
}

// round is one look at a ledger, on which the orders of a batch are carried out.
type round struct {
	domain *quota.Domain
	ledger *quota.Ledger
	now    time.Time
}

// Charge has an allocation allowed: nil once its cost is reserved, a *quota.Refusal where it does not fit, and another
// error where nothing was decided.
func (w *Writer) Charge(ctx context.Context, ledger string, ask quota.Ask) error {
	return w.order(ctx, ledger, func(r *round) (bool, error) {
		if r.domain == nil || len(r.domain.Of(ask.Namespace)) == 0 {
			// Another replica has seen a quota that this one has not.
			return false, ErrTryAgain
		}
		if refusal := r.domain.Verdict(r.ledger, ask, r.now); refusal != nil {
			return false, refusal
		}
		r.ledger.Reserve(ask, r.now)
		return !ask.Charges.Zero(), nil
	})
}

// Change changes a ledger, which is made where there is none and removed where nothing is left in it.
func (w *Writer) Change(ctx context.Context, ledger string, change Change) error {
	return w.order(ctx, ledger, func(r *round) (bool, error) {
		changed := r.ledger.Clone()
		if writes, err := change(changed, r.now); err != nil || !writes {
			return false, err
		}
		r.ledger = changed
		return true, nil
	})
}

// order waits in line and then for the answer.
func (w *Writer) order(ctx context.Context, ledger string, do func(*round) (bool, error)) error {
	o := &order{live: func() bool { return ctx.Err() == nil }, do: do, done: make(chan error, 1)}
	w.mu.Lock()
	q := w.queues[ledger]
	if q == nil {
		q = &queue{}
		w.queues[ledger] = q
	}
	q.waiting = append(q.waiting, o)
	if !q.served {
		q.served = true
		go w.serve(context.WithoutCancel(ctx), ledger, q)
	}
	w.mu.Unlock()
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return errors.Join(ErrTryAgain, ctx.Err())
	}
}

// serve carries out batches until nothing waits.
func (w *Writer) serve(ctx context.Context, ledger string, q *queue) {
	for {
		w.mu.Lock()
		batch := q.waiting
		q.waiting = nil
		if len(batch) == 0 {
			q.served = false
			if q.known != nil && q.known.object == nil {
				delete(w.queues, ledger) // there is none to remember
			}
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		w.carryOut(ctx, ledger, q, batch)
	}
}
