// SPDX-License-Identifier: Apache-2.0

package arbiter

import "slices"

// act notes that something is to be done with each gate of a tenant.
func (a *Arbiter) act(t *tenant, action Action) {
	for _, g := range t.gates {
		action.Gate = g.id
		a.actions = append(a.actions, action)
	}
}

// open begins a slice, which ends at the limit at the latest.
func (a *Arbiter) open(t *tenant, now, limit Time) {
	length := min(t.longest(), limit-now)
	if t.capped {
		length = min(length, Time(t.tokens))
	}
	contended := t.contended(now)
	end := now + length
	if !contended && !t.capped && limit == Forever {
		end = Forever
	}
	t.slice = slice{
		opened: now, from: now, length: length, end: end, until: end, changedIn: a.step,
		// What a tenant with a cap does not use of its slice must not count.
		contended: contended || t.capped, preempting: t.rushed,
	}
	t.rushed = false
	t.state = Opened
	t.slices++
	t.hadWaited += now - t.since
	for _, g := range t.gates {
		g.seen.Ran, g.seen.Running, g.seen.Again, g.shut = false, false, false, false
		g.finish = 0
	}
	for _, g := range t.gpus {
		g.busy, g.virtual, g.at = t, t.virtual, now
	}
	a.act(t, Action{Verb: Open, Until: end, Contended: t.slice.contended})
}

// fresh says whether a gate's last report is from after the last change of its slice.
func (t *tenant) fresh(g *gate) bool {
	return g.readIn >= t.changedIn || (t.natural && g.readAt >= t.closed)
}

// opened looks after a slice that is open.
func (a *Arbiter) opened(t *tenant, now Time) {
	heard, quiet := a.listen(t, now)
	switch {
	case now >= t.end:
		a.over(t, now)
	case heard && quiet && t.ran:
		a.idle(t, now)
	case t.suspect && !t.ran && now >= t.slice.opened+patience:
		a.noShow(t, now)
	default:
		a.prolong(t, now)
	}
}

// listen takes in what the processes say of an open slice: whether they said anything, and whether nothing is to run. A process
// that was done with a sequence is let in only by another.
func (a *Arbiter) listen(t *tenant, now Time) (heard, quiet bool) {
	quiet = true
	for _, g := range t.gates {
		if !t.fresh(g) {
			continue
		}
		heard = true
		t.ran = t.ran || g.seen.Ran
		quiet = quiet && !g.seen.Running && !g.seen.Wants
		if g.seen.Again && t.end-now >= millisecond {
			g.seen.Again = false
			a.actions = append(a.actions, Action{Verb: Reopen, Gate: g.id, Until: t.until, Contended: t.slice.contended})
		}
	}
	return heard, quiet
}

// idle ends a slice in which nothing runs. Another process may have been let in meanwhile, so it is looked again with the gates
// shut.
func (a *Arbiter) idle(t *tenant, now Time) {
	t.end = now
	a.shut(t)
	a.drain(t, now)
	a.act(t, Action{Verb: Look})
}

// noShow ends the slice of a tenant of which nobody has come again.
func (a *Arbiter) noShow(t *tenant, now Time) {
	if !t.checked {
		t.checked = true
		a.act(t, Action{Verb: Look, Live: true})
		return
	}
	a.idle(t, now)
}

// prolong moves the end of a slice that nobody waits for.
func (a *Arbiter) prolong(t *tenant, now Time) {
	if t.capped || t.end == Forever || t.until != t.end || now < t.end-margin || t.awaited() {
		return
	}
	t.slice.contended = t.contended(now)
	t.end += t.longest()
	if !t.slice.contended {
		t.end = Forever
	}
	t.until = t.end
	a.act(t, Action{Verb: Prolong, Until: t.until, Contended: t.slice.contended})
}

// over ends a slice: by its gates, or before these do.
func (a *Arbiter) over(t *tenant, now Time) {
	if t.until > t.end {
		a.act(t, Action{Verb: Close})
		a.drain(t, now)
		return
	}
	t.natural = true
	a.drain(t, t.end)
}

// drain begins to wait for what was launched.
func (a *Arbiter) drain(t *tenant, closed Time) {
	t.state = Draining
	t.changedIn = a.step
	t.closed = closed
	t.lookAt = closed + patience
	t.overrunAt = closed + max(patience, t.longest())
	t.finishAt = Forever
	if len(t.gpus) > 1 {
		t.finishAt = closed + closingTime
	}
}

// draining looks after a slice that is over.
func (a *Arbiter) draining(t *tenant, now Time) {
	if a.drained(t) {
		a.done(t, now)
		return
	}
	if now >= t.finishAt {
		t.finishAt = Forever
		t.lookedAt = now
		a.act(t, Action{Verb: Look})
		return
	}
	a.finishing(t)
	switch {
	case now >= t.overrunAt && t.lookedAt >= t.overrunAt:
		a.overrun(t, now)
	case now >= t.lookAt:
		t.lookAt, t.lookedAt = max(t.overrunAt, now+1), now
		a.act(t, Action{Verb: Look, Live: true})
	}
}

// drained says whether nothing of the tenant runs any more. Where one gate says so, those that have said nothing are asked.
func (a *Arbiter) drained(t *tenant) bool {
	some, all := false, true
	for _, g := range t.gates {
		if !t.fresh(g) {
			all = false
			continue
		}
		t.ran = t.ran || g.seen.Ran
		if g.seen.Running {
			return false
		}
		some = true
	}
	if some && !all {
		for _, g := range t.gates {
			if !t.fresh(g) {
				a.actions = append(a.actions, Action{Verb: Look, Gate: g.id})
			}
		}
	}
	return some && all
}

// finishing lets the processes of a gang come as far as the furthest of them.
func (a *Arbiter) finishing(t *tenant) {
	if len(t.gpus) < 2 || t.finishAt != Forever {
		return
	}
	furthest := t.finish
	for _, g := range t.gates {
		if t.fresh(g) && g.seen.Running {
			furthest = max(furthest, g.seen.Launches)
		}
	}
	if furthest > t.finish {
		t.finish = furthest
		for _, g := range t.gates {
			g.finish = max(g.finish, furthest)
		}
		a.act(t, Action{Verb: Finish, Launches: furthest})
	}
}

// coax lets processes of a gang that wait at their gates go on by one launch, while another runs what may wait for it. How far
// each is they count from where they came into the slice, which need not be the same place for all: the furthest alone does
// not tell. Where all run and all wait, they may wait for each other.
func (a *Arbiter) coax(t *tenant) {
	running, idle, all := false, false, true
	for _, g := range t.gates {
		running = running || g.seen.Running
		idle = idle || (t.waitsAt(g) && !g.seen.Running)
		all = all && t.waitsAt(g)
	}
	if len(t.gpus) < 2 || !running || (!idle && !all) {
		return
	}
	for _, g := range t.gates {
		next := max(g.seen.Launches, g.seen.Waiting) + 1
		if t.waitsAt(g) && (!idle || !g.seen.Running) && next > g.finish {
			g.finish = next
			a.actions = append(a.actions, Action{Verb: Finish, Gate: g.id, Launches: next})
		}
	}
}

// waitsAt says whether a process of the share waits at its gate.
func (t *tenant) waitsAt(g *gate) bool { return t.fresh(g) && g.seen.Wants }

// overrun lets others go on beside what does not end.
func (a *Arbiter) overrun(t *tenant, now Time) {
	t.state = Overrunning
	t.overruns++
	t.lookAt = now + lifeCheck
	t.leave()
	if len(t.gpus) > 1 {
		t.lookAt = now + coaxEvery
	}
	a.act(t, Action{Verb: Overrun})
}

// overrunning waits for what others run beside. A gang of which one process told late how far it is could wait for ever for
// the launch that the gate holds.
func (a *Arbiter) overrunning(t *tenant, now Time) {
	a.finishing(t)
	switch {
	case a.drained(t):
		a.done(t, now)
	case now >= t.lookAt:
		// What was seen last time is by now what did not go on by itself.
		a.coax(t)
		t.lookAt = now + lifeCheck
		if len(t.gpus) > 1 {
			t.lookAt = now + coaxEvery
		}
		a.act(t, Action{Verb: Look, Live: true})
	}
}

// leave gives the tenant's GPUs to others.
func (t *tenant) leave() {
	for _, g := range t.gpus {
		if g.busy == t {
			g.busy = nil
		}
	}
}

// shut says that a slice is over and drained.
func (a *Arbiter) shut(t *tenant) {
	for _, g := range t.gates {
		if !g.shut {
			g.shut = true
			a.actions = append(a.actions, Action{Verb: Shut, Gate: g.id})
		}
	}
}

// done ends a slice of which nothing runs any more.
func (a *Arbiter) done(t *tenant, now Time) {
	a.charge(t, now)
	if t.state == Overrunning {
		t.rejoin(now) // what it could not have meanwhile it does not get later
	}
	a.shut(t)
	t.leave()
	t.state = Closed
	t.missed(now)
	t.wants = t.waits()
	t.since, t.lastWant = now, now
	t.refill(now)
	t.eligible = t.mayRun(now)
}

// missed notes whether anybody came. One of which nobody came twice, as where its process is stopped, is given a slice
// ever more seldom: nobody would say that it is there again.
func (t *tenant) missed(now Time) {
	switch {
	case t.ran:
		t.suspect, t.absence = false, 0
	case !t.suspect:
		t.suspect = true
	default:
		t.absence = max(absenceMin, min(absenceMax, 2*t.absence))
		t.backAt = now + t.absence
	}
}

// waits says whether a process of the tenant waits at a gate.
func (t *tenant) waits() bool {
	for _, g := range t.gates {
		if g.seen.Wants {
			return true
		}
	}
	return false
}

// charge puts what a slice used on the tenant's account.
func (a *Arbiter) charge(t *tenant, now Time) {
	used := t.used(now)
	t.refill(now)
	t.charged += used
	t.tokens -= float64(used)
	t.virtual += float64(used) / t.weight
	if len(t.line.gpus) > 1 {
		t.catchUp(now, float64(used)/t.weight)
	}
}

// catchUp brings a tenant back that is far ahead of those who want its GPUs: it had what they could not have, because they
// waited for other GPUs as well, and that is no debt.
func (t *tenant) catchUp(now Time, last float64) {
	for _, g := range t.gpus {
		if g.contended(t) {
			t.virtual = min(t.virtual, g.virtualAt(now, t)+last)
		}
	}
}

// used is the GPU time that counts: what was measured, within what the clock allows.
func (t *tenant) used(now Time) Time {
	elapsed := now - t.from
	var measured Time
	for _, g := range t.gates {
		measured = max(measured, Time(min(g.seen.GPUTime-g.base, uint64(Forever))))
		g.base = g.seen.GPUTime
	}
	// Beside others it had half of the GPU at least, and all of it where there were none.
	least := elapsed
	if t.state == Overrunning && t.beside() {
		least -= (now - t.overrunAt) / 2
	}
	// A tenant that measures nothing, or says so, gains no more than a tenth and what a switch may cost: a fifth at most.
	used := max(min(measured, elapsed), least*9/10-min(unmeasured, least/10))
	switch {
	case !t.ran:
		used = elapsed
	case t.state == Overrunning:
		used = max(used, t.length)
	case t.preempting:
		used = elapsed + switchCost
	}
	return used
}

// beside says whether others were given one of the tenant's GPUs since its slice should have been over.
func (t *tenant) beside() bool {
	return slices.ContainsFunc(t.gpus, func(g *gpu) bool { return g.at >= t.overrunAt })
}

// contended says whether another tenant wants the GPU.
func (g *gpu) contended(but *tenant) bool {
	for _, t := range g.tenants {
		if t != but && t.contends() {
			return true
		}
	}
	return false
}
