// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/internal/quota"
)

const (
	// answerIn is how long a leader may take. It leaves time to write without it.
	answerIn = 5 * time.Second
	// restFor is how long a leader that did not answer is not asked again.
	restFor = time.Second
	// countedIn is how long a charge waits for a namespace whose first count is under way, and countPoll how often it looks.
	countedIn = 2500 * time.Millisecond
	countPoll = 100 * time.Millisecond
)

// Charger has an allocation allowed: nil once its cost is reserved, a *quota.Refusal where it does not fit, and another
// error where nothing was decided.
type Charger interface {
	Charge(ctx context.Context, name string, ask quota.Ask) error
}

// Front charges through the leader, or by itself.
type Front struct {
	// Leads says whether this replica is the leader.
	Leads func() bool
	// Own writes ledgers.
	Own Charger
	// Leader sends charges to the leader.
	Leader Charger
	// Clock tells the time.
	Clock clock.WithTicker

	resting atomic.Int64 // until when the leader is not asked, in nanoseconds
}

var _ Charger = &Front{}

// Charge has an allocation allowed. A namespace that is just being counted is waited for.
func (f *Front) Charge(ctx context.Context, name string, ask quota.Ask) error {
	until := f.Clock.Now().Add(countedIn)
	for {
		err := f.charge(ctx, name, ask)
		var refusal *quota.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != quota.RefusedUncounted || !f.Clock.Now().Before(until) {
			return err
		}
		timer := f.Clock.NewTimer(countPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}

func (f *Front) charge(ctx context.Context, name string, ask quota.Ask) error {
	for {
		if decided, err := f.forward(ctx, name, ask); decided {
			return err
		}
		err := f.Own.Charge(ctx, name, ask)
		if f.Leads() || !errors.Is(err, ledger.ErrContended) || ctx.Err() != nil {
			return err //nolint:wrapcheck // refusals are for people
		}
		f.resting.Store(0) // somebody else writes, so the leader is there
	}
}

// forward asks the leader, where there is another that answers.
func (f *Front) forward(ctx context.Context, name string, ask quota.Ask) (decided bool, err error) {
	if f.Leads() || f.Clock.Now().UnixNano() < f.resting.Load() {
		return false, nil
	}
	asking, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	err = f.Leader.Charge(asking, name, ask)
	var refusal *quota.Refusal
	if err == nil || errors.As(err, &refusal) {
		return true, err //nolint:wrapcheck // refusals are for people
	}
	if ctx.Err() == nil {
		f.resting.Store(f.Clock.Now().Add(restFor).UnixNano())
		logr.FromContextOrDiscard(ctx).V(1).Info("The leader does not charge, so this replica does", "reason", err.Error())
	}
	return false, nil
}
