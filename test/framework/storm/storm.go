// SPDX-License-Identifier: Apache-2.0

// Package storm has a crowd ask for far more than its quotas allow, disturbs the cluster meanwhile, and says whether
// the quotas held at every instant and what was left in the end.
package storm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/framework/crowd"
	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/witness"
)

// still is for how long nothing must change once everything is allocated that may be: what ends may be slow to end.
const still = 5 * time.Second

// drained is the longest that ledgers may say more than is allocated once nothing more is.
const drained = 36 * time.Second

// churnEvery is how often a pod ends.
const churnEvery = 100 * time.Millisecond

// reviveEvery is how often the scheduler is looked after.
const reviveEvery = 5 * time.Second

const scheduler = "kube-scheduler"

// Storm is one storm. Its namespaces and quotas exist.
type Storm struct {
	// Stack is where it happens.
	Stack *stack.Stack
	// Client watches and lists as the administrator.
	Client client.WithWatch
	// Crowd asks.
	Crowd crowd.Crowd
	// Bounds are what must hold at every instant.
	Bounds []witness.Bound
	// Want is how many claims are allocated in the end.
	Want int
	// Each is how many are in each namespace in the end; nil where only the sum is certain.
	Each map[string]int
	// Disturb is done while the scheduler allocates; nil for nothing.
	Disturb func(context.Context) error
	// Churn is for how long pods that have their share end and are asked for again, from before Disturb on.
	Churn time.Duration
}

// Outcome is what came of it.
type Outcome struct {
	// Findings are the witness's.
	Findings witness.Findings
	// Report is the clients'.
	Report *crowd.Report
	// Waiting is how many pods there were when the scheduler began to allocate.
	Waiting int
	// Settled is how long it took after the churn until all was allocated that may be.
	Settled time.Duration
	// Drained is how long it took, after that had stayed so for a while, until the ledgers said so too.
	Drained time.Duration
}

// Run has the storm. Most pods come while the scheduler is away, so that nothing is refused early and all of them ask
// at the judge's at once; the rest come while it allocates. The error says what did not come to be; what was wrong in
// between is in the findings.
func (s Storm) Run(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var o Outcome
	w, err := witness.Watch(ctx, s.Client)
	if err != nil {
		return o, err
	}
	if err := s.Stack.Stop(ctx, scheduler); err != nil {
		return o, err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	report, ended := s.Crowd.Start(asking)
	o.Report = report
	waited := stack.Poll(ctx, "most pods wait", func(context.Context) (bool, error) {
		return report.Created() >= s.Crowd.Pods*2/3, nil
	})
	o.Waiting = report.Created()
	if err := errors.Join(waited, s.Stack.Start(ctx, scheduler)); err != nil {
		return o, err
	}
	failed := s.weather(ctx, w, &o)
	stop()
	<-ended
	o.Findings = w.Judge(s.Bounds...)
	return o, failed
}

// weather waits while the scheduler allocates, until everything is as it must be in the end.
func (s Storm) weather(ctx context.Context, w *witness.Witness, o *Outcome) error {
	// What disturbs comes when about half is allocated.
	if err := s.until(ctx, "half of it is allocated", func(context.Context) (bool, error) {
		return sum(s.counts(w)) >= s.Want/2, nil
	}, w); err != nil {
		return err
	}
	churning, cancel := context.WithTimeout(ctx, s.Churn)
	defer cancel()
	churned := make(chan struct{})
	go func() {
		defer close(churned)
		s.churn(churning, w, o.Report)
	}()
	if s.Disturb != nil {
		if err := s.Disturb(ctx); err != nil {
			return fmt.Errorf("disturbing: %w", err)
		}
	}
	<-churned
	reviving, enough := context.WithCancel(ctx)
	defer enough()
	go s.revive(reviving)
	begin := time.Now()
	var since time.Time // from when on it has been as it must be
	if err := s.until(ctx, fmt.Sprintf("%d claims (%v) are allocated and stay so", s.Want, s.Each), func(context.Context) (bool, error) {
		switch {
		case !s.allocated(w):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) >= still, nil
	}, w); err != nil {
		return err
	}
	o.Settled = since.Sub(begin)
	begin = time.Now()
	draining, end := context.WithTimeout(ctx, drained)
	defer end()
	if err := s.until(draining, "the ledgers say so", s.recorded, w); err != nil {
		return err
	}
	o.Drained = time.Since(begin)
	if !s.allocated(w) {
		return fmt.Errorf("allocated are %v, want %d (%v) to stay", s.counts(w), s.Want, s.Each)
	}
	return nil
}

// revive starts the scheduler again where it has ended by itself, as a kubelet would: it ends when its cache contradicts an
// API server that was away while pods went and came.
func (s Storm) revive(ctx context.Context) {
	tick := time.NewTicker(reviveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.Stack.Start(ctx, scheduler) // tried again
		}
	}
}

// churn ends pods that have their share, one after another, whatever becomes of it.
func (s Storm) churn(ctx context.Context, w *witness.Witness, report *crowd.Report) {
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		holders := w.Holders(s.Crowd.Namespaces[i%len(s.Crowd.Namespaces)])
		if len(holders) > 0 {
			_ = s.Crowd.End(ctx, holders[rand.IntN(len(holders))], report) //nolint:gosec // the API server may be away
		}
	}
}

func (s Storm) until(ctx context.Context, what string, done func(context.Context) (bool, error), w *witness.Witness) error {
	if err := stack.Poll(ctx, what, done); err != nil {
		return fmt.Errorf("%w (allocated: %v)", err, s.counts(w))
	}
	return nil
}

func (s Storm) counts(w *witness.Witness) map[string]int {
	counts := map[string]int{}
	for _, namespace := range s.Crowd.Namespaces {
		counts[namespace] = w.Allocated(namespace)
	}
	return counts
}

func (s Storm) allocated(w *witness.Witness) bool {
	counts := s.counts(w)
	return sum(counts) == s.Want && (s.Each == nil || maps.Equal(counts, s.Each))
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// recorded says whether the ledgers' use is the wanted number.
func (s Storm) recorded(ctx context.Context) (bool, error) {
	var ledgers v1alpha1.GPULedgerList
	if err := s.Client.List(ctx, &ledgers); err != nil {
		return false, fmt.Errorf("listing the ledgers: %w", err)
	}
	var used int64
	for i := range ledgers.Items {
		ledger := quota.ReadLedger(&ledgers.Items[i])
		for _, namespace := range s.Crowd.Namespaces {
			if entry, found := ledger.Namespaces[namespace]; found && entry.MovedTo == "" {
				used += ledger.Used(namespace, nil)[v1alpha1.QuotaGPUs]
			}
		}
	}
	return used == int64(s.Want), nil
}
