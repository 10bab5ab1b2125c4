// SPDX-License-Identifier: Apache-2.0

// Package arbiter hands out the time of the node's GPUs: one thread that hears the bells of shares, reads what their
// processes say, has internal/arbiter decide, and opens and shuts their gates. Only the node's active agent runs it.
//
// The thread is locked and, where the agent may, a real-time one, because a slice that begins late is time that nobody
// has. It sleeps until a bell rings or a slice must end; nothing in it is periodic. Another goroutine finds the shares.
package arbiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	decide "github.com/sluice-gpu/sluice/internal/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// Shares is the door to the share files.
type Shares interface {
	Find() ([]limits.Found, error)
	Turn(claimUID string, index int) (*limits.Turn, error)
	Root() string
}

// Options are what an arbiter is made of.
type Options struct {
	Shares  Shares
	Metrics *Metrics
	Log     logr.Logger
}

// Arbiter is the node's. Begin comes first, then Run.
type Arbiter struct {
	shares  Shares
	metrics *Metrics
	log     logr.Logger
	clock   clock
	poll    *poller
	finder  *finder

	// mu guards what the thread works with, for Snapshot.
	mu      sync.Mutex
	core    *decide.Arbiter
	seats   []*seat
	gates   map[decide.Gate]*seat
	rung    []*seat
	wake    []*seat
	masked  int
	rings   uint64
	reread  decide.Time
	buffer  []byte
	trouble string

	// pending are changes of the shares that the thread has not taken in yet.
	pendingMu sync.Mutex
	pending   []change
	refresh   bool
	stopping  bool
}

// change is a share that came or went.
type change struct {
	add    *limits.Turn
	remove *limits.Turn
}

// Standing is what a share has had since the arbiter began with it.
type Standing struct {
	ClaimUID string
	Index    int
	decide.Snapshot
}

// Begin shuts the gates of all shares that are there. The lease may be renewed from then on.
func Begin(o Options) (*Arbiter, error) {
	a := &Arbiter{
		shares: o.Shares, metrics: o.Metrics, log: o.Log,
		core: decide.New(), gates: map[decide.Gate]*seat{}, buffer: make([]byte, bellBuffer),
	}
	var err error
	if a.clock, err = newClock(); err != nil {
		return nil, err
	}
	if a.poll, err = newPoller(); err != nil {
		return nil, err
	}
	a.finder = newFinder(o.Shares, a.post, o.Log)
	if err := a.finder.find(); err != nil {
		o.Log.Error(err, "Not every share could be found; it is tried again")
	}
	a.take()
	return a, nil
}

// Run arbitrates until the context ends, and leaves every gate without an arbiter then: processes pace themselves at once,
// where a gate that is shut would have held them until the lease runs out, and one that is open would let them go on without
// a bound until then.
func (a *Arbiter) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	finding, stop := context.WithCancel(ctx)
	beside.Go(func() { a.finder.run(finding) })
	unhook := context.AfterFunc(ctx, func() {
		a.pendingMu.Lock()
		a.stopping = true
		a.pendingMu.Unlock()
		a.poll.notify()
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.thread()
	}()
	<-done
	unhook()
	stop()
	beside.Wait()
	return a.end()
}

// Refresh has the figures of all shares read again, and looks for new ones. It never blocks.
func (a *Arbiter) Refresh() {
	a.pendingMu.Lock()
	a.refresh = true
	a.pendingMu.Unlock()
	a.poll.notify()
	a.finder.soon()
}

// Snapshot is what each share has had.
func (a *Arbiter) Snapshot() []Standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.now()
	list := make([]Standing, 0, len(a.seats))
	for _, s := range a.seats {
		if s != nil {
			list = append(list, Standing{ClaimUID: s.turn.ClaimUID, Index: s.turn.Index, Snapshot: a.core.Snapshot(now, s.gate)})
		}
	}
	return list
}

// Rings is how many bells were served so far.
func (a *Arbiter) Rings() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rings
}

// post hands a change to the thread.
func (a *Arbiter) post(c change) {
	a.pendingMu.Lock()
	a.pending = append(a.pending, c)
	a.pendingMu.Unlock()
	a.poll.notify()
}

// end leaves the gates without an arbiter and closes everything.
func (a *Arbiter) end() error {
	a.take()
	failed := []error{}
	for _, s := range a.seats {
		if s != nil {
			s.turn.Set(limits.GateNone)
			failed = append(failed, s.turn.Wake(), s.turn.Close())
		}
	}
	a.seats = nil
	failed = append(failed, a.finder.close(), a.poll.close())
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("ending the arbiter: %w", err)
	}
	return nil
}

// clock reads CLOCK_MONOTONIC without a system call.
type clock struct {
	start time.Time
	base  uint64
}

func newClock() (clock, error) {
	c := clock{start: time.Now()}
	var err error
	if c.base, err = limits.Monotonic(); err != nil {
		return c, fmt.Errorf("reading the clock: %w", err)
	}
	return c, nil
}

func (c clock) now() decide.Time {
	return decide.Time(c.base) + decide.Time(time.Since(c.start))
}
