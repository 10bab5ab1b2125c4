// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"slices"
)

// Report takes in what the processes of a share say now. What follows from it is decided by the next Step.
func (a *Arbiter) Report(now Time, id Gate, seen Report) {
	g := a.gates[id]
	g.seen, g.readAt, g.readIn = seen, now, a.step
	if seen.Live {
		g.tenant.liveAt = now
	}
	g.tenant.line.dirty = true
}

// Step decides what is to be done now, and says when it must be asked again where nothing happens before. The actions hold
// until the next call. Where there are any to look, their reports and another Step must follow at once.
func (a *Arbiter) Step(now Time) (actions []Action, next Time) {
	a.step++
	a.actions = a.actions[:0]
	next = Forever
	for _, l := range a.lines {
		if l.dirty || now >= l.next {
			l.dirty = false
			for _, t := range l.tenants {
				a.tend(t, now)
			}
			a.schedule(l, now)
			l.next = l.due()
		}
		next = min(next, l.next)
	}
	return a.actions, next
}

// tend does what is due for one tenant.
func (a *Arbiter) tend(t *tenant, now Time) {
	if t.state == Opened {
		a.opened(t, now)
	}
	switch t.state {
	case Draining:
		a.draining(t, now)
	case Overrunning:
		a.overrunning(t, now)
	case Closed, Opened:
	}
	if t.state == Closed {
		a.waiting(t, now)
	}
}

// waiting looks after a tenant whose gates are shut.
func (a *Arbiter) waiting(t *tenant, now Time) {
	switch waits := t.waits(); {
	case waits && !t.wants:
		a.wake(t, now)
	case !waits && t.wants:
		t.wants = false
		t.lastWant = now
		t.hadWaited += now - t.since
	case waits && !t.eligible:
		t.refill(now)
		if t.eligible = t.mayRun(now); t.eligible {
			a.join(t, now, false)
		}
	}
}

// wake takes in that a tenant begins to want the GPU.
func (a *Arbiter) wake(t *tenant, now Time) {
	t.refill(now)
	t.wants, t.since = true, now
	t.eligible = t.mayRun(now)
	if t.eligible {
		a.join(t, now, true)
	}
}

// rejoin gives a tenant its place among those who want the GPU: it may be behind by one slice, whatever it did not use before.
func (t *tenant) rejoin(now Time) {
	t.virtual = max(t.virtual, t.around(now)-float64(t.longest())/t.weight)
}

// join takes a tenant in that can have the GPU now. Where it is behind the one that runs, and not ahead of all, that one's slice ends.
func (a *Arbiter) join(t *tenant, now Time, woken bool) {
	for _, g := range t.gpus {
		if r := g.busy; r != nil && r.state == Opened && now-r.from > long {
			r.rebase(now)
		}
	}
	t.rejoin(now)
	for _, g := range t.gpus {
		if r := g.busy; r != nil && (t.virtual >= r.virtualAt(now) || t.virtual > g.virtualAt(now, nil)) {
			return
		}
	}
	for _, g := range t.gpus {
		r := g.busy
		if r == nil || r.state != Opened {
			continue
		}
		if end := max(now, r.slice.opened+shortSlice); end < r.end {
			r.end = end
			t.rushed = t.rushed || woken
		}
	}
}

// rebase settles what a tenant did while nobody else wanted the GPU.
func (t *tenant) rebase(now Time) {
	t.virtual = t.virtualAt(now)
	t.charged += now - t.from
	t.tokens -= float64(now - t.from)
	t.from = now
	for _, g := range t.gates {
		g.base = g.seen.GPUTime
	}
}

// contended says whether another tenant wants one of the tenant's GPUs, or did a moment ago.
func (t *tenant) contended(now Time) bool {
	for _, g := range t.gpus {
		for _, other := range g.tenants {
			if other != t && (other.wants || now-other.lastWant < remembered) {
				return true
			}
		}
	}
	return false
}

// awaited says whether another tenant could have one of the tenant's GPUs now.
func (t *tenant) awaited() bool {
	for _, g := range t.gpus {
		for _, other := range g.tenants {
			if other != t && other.state == Closed && other.contends() {
				return true
			}
		}
	}
	return false
}

// schedule opens what can be opened, in the order of turns. A tenant of several GPUs whose turn it is keeps those that are
// free for itself: others may have them only until the last of them will be.
func (a *Arbiter) schedule(l *timeline, now Time) {
	if !l.line(now) {
		return
	}
	for _, t := range l.queue {
		limit, free := Forever, now
		for _, g := range t.gpus {
			limit = min(limit, g.reserved)
			if g.busy != nil {
				free = max(free, a.freeAt(g.busy, now))
			}
		}
		switch {
		case free > now:
			t.reserve(free)
		case limit-now < shortSlice:
			// What is left is not worth a switch.
		case now-t.liveAt >= lifeCheck:
			// One that died at the gate still seems to wait.
			a.act(t, Action{Verb: Look, Live: true})
			return
		default:
			t.refill(now)
			a.open(t, now, limit)
		}
	}
}

// line puts those who may have a slice in the order of turns; false where nobody may.
func (l *timeline) line(now Time) bool {
	l.queue = l.queue[:0]
	for _, t := range l.tenants {
		if t.state == Closed && t.contends() {
			l.queue = append(l.queue, t)
		}
	}
	if len(l.queue) == 0 {
		return false
	}
	for _, g := range l.gpus {
		g.reserved, g.mean = Forever, g.virtualAt(now, nil)
	}
	for _, t := range l.queue {
		t.rank()
	}
	slices.SortStableFunc(l.queue, func(x, y *tenant) int {
		return cmp.Or(cmp.Compare(x.class, y.class), cmp.Compare(x.key, y.key))
	})
	return true
}

// reserve keeps the GPUs of a tenant of several for it, from when all of them are free.
func (t *tenant) reserve(from Time) {
	if len(t.gpus) < 2 {
		return
	}
	for _, g := range t.gpus {
		g.reserved = min(g.reserved, from)
	}
}

// freeAt is when a tenant will leave its GPUs, which others wait for: after one more slice at the latest.
func (a *Arbiter) freeAt(t *tenant, now Time) Time {
	if t.state != Opened {
		return now + millisecond
	}
	t.end = min(t.end, now+t.longest())
	if !t.slice.contended {
		t.slice.contended = true
		a.act(t, Action{Verb: Prolong, Until: t.until, Contended: true})
	}
	return max(t.end, now) + millisecond
}

// due is when something must be done in the timeline where nothing happens before.
func (l *timeline) due() Time {
	next := Forever
	for _, t := range l.tenants {
		next = min(next, t.due())
	}
	return next
}

func (t *tenant) due() Time {
	switch t.state {
	case Closed:
		if t.wants && !t.eligible {
			return t.mayRunAt()
		}
	case Opened:
		return t.openedDue()
	case Draining:
		return min(t.finishAt, t.lookAt)
	case Overrunning:
		return t.lookAt
	}
	return Forever
}

// openedDue is when an open slice needs attention. One that ends by itself, with somebody waiting, needs none before its
// processes had the time to drain.
func (t *tenant) openedDue() Time {
	next := Forever
	switch {
	case t.end == Forever:
	case t.until > t.end:
		next = t.end
	case !t.capped && !t.awaited():
		next = t.end - margin
	case len(t.gpus) > 1:
		next = t.end + closingTime
	default:
		next = t.end + patience
	}
	if t.suspect && !t.ran && !t.checked {
		next = min(next, t.slice.opened+patience)
	}
	return next
}
