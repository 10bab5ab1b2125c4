// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"runtime"
	"slices"

	decide "github.com/sluice-gpu/sluice/internal/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// rereadAfter is how old the figures of the shares may be where the thread works anyway.
const rereadAfter = decide.Time(200_000_000)

// thread is the arbiter's life. It keeps its thread for itself, and the thread ends with it.
func (a *Arbiter) thread() {
	runtime.LockOSThread()
	if err := beRealTime(); err != nil {
		a.log.Info("Slices may begin late: the arbiter's thread is not a real-time one", "reason", err.Error())
	}
	next := decide.Time(0)
	for {
		if !a.hear(next) {
			return
		}
		next = a.work()
	}
}

// hear sleeps until something is to be done; false where the arbiter is to stop.
func (a *Arbiter) hear(next decide.Time) bool {
	now := a.clock.now()
	events, err := a.poll.wait(next - now)
	if err != nil {
		a.note(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now = a.clock.now()
	if len(events) == 0 && next < decide.Forever && now > next {
		a.metrics.late(now - next)
	}
	for _, place := range events {
		if place == noPlace {
			continue
		}
		if s := a.seats[place]; s != nil && s.until == 0 && !s.ringing {
			a.ring(s, now)
		}
	}
	return !a.stop()
}

func (a *Arbiter) stop() bool {
	a.pendingMu.Lock()
	defer a.pendingMu.Unlock()
	return a.stopping
}

// ring has a bell served, or masked.
func (a *Arbiter) ring(s *seat, now decide.Time) {
	if !s.allow(now) {
		a.masked++
		a.note(a.poll.mask(s.turn.Bell(), s.place))
		return
	}
	s.ringing = true
	a.rung = append(a.rung, s)
	if s.count++; s.count >= emptyAfter {
		s.count = 0
		a.note(s.turn.Hush(a.buffer))
	}
}

// work serves what rang and does what is due. It returns when there is something to do again.
func (a *Arbiter) work() decide.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take()
	now := a.clock.now()
	unmask := a.unmask(now)
	if now-a.reread >= rereadAfter {
		a.readFigures(now)
	}
	for _, s := range a.rung {
		s.ringing = false
		a.rings++
		a.report(s, now, false)
	}
	a.rung = a.rung[:0]
	for {
		actions, next := a.core.Step(now)
		looked := false
		for i := range actions {
			looked = a.do(&actions[i], now) || looked
		}
		a.wakeAll()
		if !looked {
			return min(next, unmask)
		}
		now = a.clock.now()
	}
}

// do does one thing, and says whether it was to look.
func (a *Arbiter) do(action *decide.Action, now decide.Time) bool {
	s := a.gates[action.Gate]
	switch action.Verb {
	case decide.Look:
		a.report(s, now, action.Live)
		return true
	case decide.Open:
		s.turn.Open(until(action.Until), action.Contended)
		s.opened(now)
		a.metrics.slice()
		a.rouse(s)
	case decide.Reopen:
		s.turn.Open(until(action.Until), action.Contended)
		a.rouse(s)
	case decide.Prolong:
		s.turn.Prolong(until(action.Until), action.Contended)
		if action.Contended && action.Until == decide.Forever {
			a.rouse(s) // nothing else makes who has the GPU to itself look
		}
	case decide.Close:
		s.turn.Set(limits.GateClosing)
		a.rouse(s)
	case decide.Shut:
		s.turn.Set(limits.GateClosed)
	case decide.Overrun:
		s.turn.Set(limits.GateOverrun)
		a.metrics.overrun()
	case decide.Finish:
		s.turn.Finish(action.Launches)
		a.rouse(s)
	}
	return false
}

// rouse has those woken who wait for a gate, once all gates are as they are to be.
func (a *Arbiter) rouse(s *seat) {
	if !s.waking {
		s.waking = true
		a.wake = append(a.wake, s)
	}
}

func (a *Arbiter) wakeAll() {
	for _, s := range a.wake {
		s.waking = false
		a.note(s.turn.Wake())
	}
	a.wake = a.wake[:0]
}

func until(t decide.Time) uint64 {
	if t == decide.Forever {
		return math.MaxUint64
	}
	return uint64(t)
}

// report reads what the processes of a share say. What cannot be read says nothing.
func (a *Arbiter) report(s *seat, now decide.Time, live bool) {
	paces, err := s.turn.Read(int64(now), live)
	a.note(err)
	s.processes = len(paces.List)
	a.core.Report(now, s.gate, digest(paces, s.turn.Sequence(), live))
}

// unmask hears bells again whose time is over, and says when the next one's is.
func (a *Arbiter) unmask(now decide.Time) decide.Time {
	next := decide.Forever
	if a.masked == 0 {
		return next
	}
	for _, s := range a.seats {
		switch {
		case s == nil || s.until == 0:
		case now < s.until:
			next = min(next, s.until)
		default:
			s.until = 0
			a.masked--
			// What was rung meanwhile is answered by reading once.
			a.note(s.turn.Hush(a.buffer))
			a.note(a.poll.hear(s.turn.Bell(), s.place))
			s.ringing = true
			a.rung = append(a.rung, s)
		}
	}
	return next
}

// readFigures takes in what the pages say of the shares now.
func (a *Arbiter) readFigures(now decide.Time) {
	a.reread = now
	for _, s := range a.seats {
		if s != nil {
			share, policy := s.turn.Compute()
			a.core.Change(now, s.gate, share, policy == limits.PolicyCap)
		}
	}
}

// take takes in what was found or has gone.
func (a *Arbiter) take() {
	a.pendingMu.Lock()
	pending, refresh := a.pending, a.refresh
	a.pending, a.refresh = nil, false
	a.pendingMu.Unlock()
	for _, c := range pending {
		if c.remove != nil {
			a.leave(c.remove)
		}
		if c.add != nil {
			a.enter(c.add)
		}
	}
	if refresh || len(pending) > 0 {
		a.reread = 0
	}
}

// enter takes in a share. Its gate is shut before anything is read.
func (a *Arbiter) enter(turn *limits.Turn) {
	turn.Set(limits.GateClosed)
	s := &seat{turn: turn, mask: maskMin, rings: ringsSlice}
	s.place = int32(len(a.seats))
	for i, other := range a.seats {
		if other == nil {
			s.place = int32(i)
		}
	}
	if int(s.place) == len(a.seats) {
		a.seats = append(a.seats, nil)
	}
	a.seats[s.place] = s
	a.note(a.poll.add(turn.Bell(), s.place))
	now := a.clock.now()
	paces, err := turn.Read(int64(now), true)
	a.note(err)
	share, policy := turn.Compute()
	s.gate = a.core.Add(now, decide.Share{
		Tenant: turn.ClaimUID, Device: turn.Device(), Compute: share, Capped: policy == limits.PolicyCap,
	}, digest(paces, turn.Sequence(), true))
	a.gates[s.gate] = s
	a.note(turn.Wake())
}

// leave forgets a share that is gone. Who still has it paces itself.
func (a *Arbiter) leave(turn *limits.Turn) {
	for i, s := range a.seats {
		if s == nil || s.turn != turn {
			continue
		}
		a.core.Remove(a.clock.now(), s.gate)
		delete(a.gates, s.gate)
		if s.until != 0 {
			a.masked--
		}
		a.seats[i] = nil
		a.rung = slices.DeleteFunc(a.rung, func(other *seat) bool { return other == s })
		turn.Set(limits.GateNone)
		a.note(turn.Wake())
		a.note(turn.Close())
	}
}

// note logs trouble once for as long as it is the same.
func (a *Arbiter) note(err error) {
	if err == nil || err.Error() == a.trouble {
		return
	}
	a.trouble = err.Error()
	a.log.Error(err, "The arbiter has trouble")
}
