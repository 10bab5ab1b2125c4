// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"slices"
)

// gate is one share's.
type gate struct {
	id     Gate
	share  Share
	tenant *tenant
	gpu    *gpu
	// seen is the last report, which came at readAt after the step readIn; base the GPU time that was charged already.
	seen   Report
	readAt Time
	readIn uint64
	base   uint64
	// shut says that nothing more need be said of a slice that is over.
	shut bool
	// finish is how many launches of the slice its processes may complete after it is over.
	finish uint32
}

// gpu is a device, whole or an instance.
type gpu struct {
	device  [16]byte
	tenants []*tenant
	// busy is the tenant whose slice is open or drains.
	busy *tenant
	// virtual is the virtual time at `at`, where nobody wants the GPU.
	virtual float64
	at      Time
	// mean is its virtual time while it is decided what to open.
	mean float64
	// reserved is until when others than a waiting tenant of several GPUs may use it.
	reserved Time
}

// tenant is all shares of one claim.
type tenant struct {
	name  string
	gates []*gate
	gpus  []*gpu
	line  *timeline

	// weight is its share of each of its GPUs; rate what that comes to where more than all was asked for.
	weight, rate float64
	capped       bool

	state State
	// wants says that a process waits or, while the gates are open, that it may run; since when; and when it last did.
	wants    bool
	since    Time
	lastWant Time
	// virtual is its virtual time; class and key are its place in the order of turns.
	virtual float64
	class   int
	key     float64
	// tokens, of a tenant with a cap, at `at`; eligible says that it may have a slice: they are enough for one, and it is
	// not absent.
	tokens   float64
	at       Time
	eligible bool
	// backAt is when one of which nobody came is given another slice, absence how long that was.
	backAt, absence Time

	slice
	history
}

// slice is what is known of a tenant's present or last slice.
type slice struct {
	// opened is when it began, from since when it is not yet charged, length what was granted at once.
	opened, from, length Time
	// end is when it is to end, until what its gates say of that.
	end, until Time
	contended  bool
	// ran says that something was launched, preempting that it ended another's slice, checked that it was looked whether
	// anybody came.
	ran, preempting, checked bool
	// closed is when it ended, lookAt when somebody must look whether it has drained, overrunAt when it should have.
	closed, lookAt, overrunAt, lookedAt Time
	// finishAt is when it should be known how far the furthest of a gang is; finish is how far.
	finishAt Time
	finish   uint32
	// changedIn is the step that opened or ended it: a report from before says nothing. One from after an end that was
	// known beforehand does.
	changedIn uint64
	natural   bool
}

// history is what a tenant's slices leave.
type history struct {
	// suspect says that nobody came in the last slice; rushed that the next one ends another's.
	suspect, rushed bool
	// liveAt is when its processes were last known to live.
	liveAt             Time
	slices, overruns   uint64
	charged, hadWaited Time
}

// timeline is GPUs that are joined by tenants of several.
type timeline struct {
	gpus    []*gpu
	tenants []*tenant
	queue   []*tenant
	// dirty says that something has changed, next when something will.
	dirty bool
	next  Time
}

// Arbiter is the state of a node's GPUs. It is not safe for concurrent use.
type Arbiter struct {
	gates   []*gate
	tenants map[string]*tenant
	gpus    map[[16]byte]*gpu
	lines   []*timeline
	// regroup says that the timelines must be found anew.
	regroup bool
	actions []Action
	// step counts the steps.
	step uint64
}

// New makes an arbiter without shares.
func New() *Arbiter {
	return &Arbiter{tenants: map[string]*tenant{}, gpus: map[[16]byte]*gpu{}}
}

// Add takes in a share whose gate is shut, with what its processes say. What runs has its GPU until it has drained.
func (a *Arbiter) Add(now Time, share Share, seen Report) Gate {
	t := a.tenants[share.Tenant]
	if t == nil {
		t = &tenant{name: share.Tenant, at: now, lastWant: now - remembered, eligible: true}
		t.liveAt = now - lifeCheck
		a.tenants[share.Tenant] = t
	}
	device := a.gpus[share.Device]
	if device == nil {
		device = &gpu{device: share.Device, at: now}
		a.gpus[share.Device] = device
	}
	g := &gate{share: share, tenant: t, gpu: device, seen: seen, readAt: now, readIn: a.step, base: seen.GPUTime, shut: true}
	g.id = Gate(slices.Index(a.gates, nil))
	if g.id < 0 {
		g.id = Gate(len(a.gates))
		a.gates = append(a.gates, nil)
	}
	a.gates[g.id] = g
	t.gates = append(t.gates, g)
	if !slices.Contains(t.gpus, device) {
		t.gpus = append(t.gpus, device)
		device.tenants = append(device.tenants, t)
	}
	a.regroup = true
	a.group(now)
	a.settleIn(now, t, seen)
	return g.id
}

// settleIn gives a tenant with a new share its state.
func (a *Arbiter) settleIn(now Time, t *tenant, seen Report) {
	t.line.dirty = true
	switch {
	case t.state == Opened:
		// The next slice opens all of its gates.
		t.end = now
	case t.state == Closed && seen.Running:
		t.slice = slice{opened: now, from: now, end: now, until: now, length: t.longest(), ran: true}
		a.drain(t, now)
	}
	if t.state != Draining {
		return
	}
	for _, g := range t.gpus {
		if g.busy == nil {
			g.busy = t
		}
	}
}

// Remove forgets a share. What its processes still do is theirs.
func (a *Arbiter) Remove(now Time, id Gate) {
	g := a.gates[id]
	t := g.tenant
	a.gates[id] = nil
	t.gates = slices.DeleteFunc(t.gates, func(other *gate) bool { return other == g })
	if !slices.ContainsFunc(t.gates, func(other *gate) bool { return other.gpu == g.gpu }) {
		t.gpus = slices.DeleteFunc(t.gpus, func(other *gpu) bool { return other == g.gpu })
		g.gpu.tenants = slices.DeleteFunc(g.gpu.tenants, func(other *tenant) bool { return other == t })
		if g.gpu.busy == t {
			g.gpu.busy = nil
		}
	}
	if len(g.gpu.tenants) == 0 {
		delete(a.gpus, g.gpu.device)
	}
	if len(t.gates) == 0 {
		delete(a.tenants, t.name)
	}
	a.regroup = true
	a.group(now)
}

// Change gives a share other figures, which hold from then on.
func (a *Arbiter) Change(now Time, id Gate, compute uint32, capped bool) {
	g := a.gates[id]
	if g.share.Compute == compute && g.share.Capped == capped {
		return
	}
	g.share.Compute, g.share.Capped = compute, capped
	a.weigh(now)
}

// Snapshot is what a share has had until now.
func (a *Arbiter) Snapshot(now Time, id Gate) Snapshot {
	t := a.gates[id].tenant
	waited := t.hadWaited
	if t.wants && t.state == Closed {
		waited += now - t.since
	}
	return Snapshot{
		Slices: t.slices, Overruns: t.overruns, Charged: t.charged, Waited: waited, State: t.state, Wants: t.wants,
	}
}

// group finds the timelines: GPUs that some tenant uses together are in one.
func (a *Arbiter) group(now Time) {
	if !a.regroup {
		return
	}
	a.regroup = false
	a.lines = a.lines[:0]
	for _, t := range a.tenants {
		t.line = nil
	}
	for _, t := range a.sorted() {
		if t.line != nil {
			continue
		}
		line := &timeline{dirty: true}
		line.take(t)
		a.lines = append(a.lines, line)
	}
	a.weigh(now)
}

// sorted are the tenants in an order that does not change from run to run.
func (a *Arbiter) sorted() []*tenant {
	var list []*tenant
	for _, g := range a.gates {
		if g != nil && !slices.Contains(list, g.tenant) {
			list = append(list, g.tenant)
		}
	}
	return list
}

// take takes in a tenant and all that are joined with it.
func (l *timeline) take(t *tenant) {
	if t.line != nil {
		return
	}
	t.line = l
	l.tenants = append(l.tenants, t)
	for _, g := range t.gpus {
		if slices.Contains(l.gpus, g) {
			continue
		}
		l.gpus = append(l.gpus, g)
		for _, other := range g.tenants {
			l.take(other)
		}
	}
}
