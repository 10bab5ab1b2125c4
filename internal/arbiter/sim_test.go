// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-gpu/sluice/internal/arbiter"
)

const (
	us  arbiter.Time = 1000
	ms               = 1000 * us
	sec              = 1000 * ms
	// tick is the grain of the simulation.
	tick = 50 * us
	// ahead is how much work a process lets be ahead of the GPU.
	ahead = 2 * ms
)

// proc is a process of a share, with a library that does what the contract says.
type proc struct {
	gate *simGate
	// kernel is how long one launch runs; 0 where it never ends.
	kernel arbiter.Time
	// every and work are of a process that gets requests: so much work so often. It always has work where every is 0.
	every, work arbiter.Time
	// awake says from when to when it works at all.
	from, to arbiter.Time
	// lie is what it says that it used, times what it did.
	lie float64
	// deaf says that it never says that it has drained, gang that its launches wait for those of the others.
	deaf bool
	gang *gang
	// noisy says that it rings and rings.
	noisy bool

	backlog, queued, current arbiter.Time
	admitted                 bool
	sequence, saidSequence   int
	runs, drained, wants     bool
	idleFor                  arbiter.Time
	launches, done           int
	dead, stopped            bool
	// got is the GPU time that it really had, waits the longest times from a request to its admission.
	got       arbiter.Time
	wantSince arbiter.Time
	worst     arbiter.Time
	waits     []arbiter.Time
}

// gang is processes whose launches run only together.
type gang struct {
	members []*proc
	spun    arbiter.Time
}

type simGate struct {
	id        arbiter.Gate
	tenant    string
	gpu       byte
	procs     []*proc
	sequence  int
	open      bool
	until     arbiter.Time
	contended bool
	finish    int
	gpuTime   float64
	bell      bool
	overruns  int
	overran   bool
}

type sim struct {
	t     *testing.T
	a     *arbiter.Arbiter
	now   arbiter.Time
	next  arbiter.Time
	gates []*simGate
	byID  map[arbiter.Gate]*simGate
	rnd   *rand.Rand
	// busy is how long each GPU ran something.
	busy  map[byte]arbiter.Time
	steps int
}

func newSim(t *testing.T, seed uint64) *sim {
	t.Helper()
	return &sim{
		t: t, a: arbiter.New(), byID: map[arbiter.Gate]*simGate{}, busy: map[byte]arbiter.Time{},
		rnd: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // G404: the same each time
	}
}

// share adds a share with its processes.
func (s *sim) share(tenant string, gpu byte, compute uint32, capped bool, procs ...*proc) *simGate {
	g := &simGate{tenant: tenant, gpu: gpu, procs: procs}
	for _, p := range procs {
		p.gate = g
		if p.lie == 0 {
			p.lie = 1
		}
		if p.to == 0 {
			p.to = arbiter.Forever
		}
	}
	g.id = s.a.Add(s.now, arbiter.Share{Tenant: tenant, Device: [16]byte{gpu}, Compute: compute, Capped: capped}, arbiter.Report{})
	s.gates = append(s.gates, g)
	s.byID[g.id] = g
	return g
}

// run lets time pass.
func (s *sim) run(length arbiter.Time) {
	for end := s.now + length; s.now < end; {
		for _, g := range s.gates {
			for _, p := range g.procs {
				s.work(p)
			}
		}
		s.execute()
		s.now += tick
		s.arbitrate()
	}
}

// work is what a process and its library do at one moment.
func (s *sim) work(p *proc) {
	if p.dead || p.stopped {
		return
	}
	g := p.gate
	awake := s.now >= p.from && s.now < p.to
	if awake && p.every > 0 && s.now%p.every < tick {
		p.backlog += p.work
	}
	has := awake && (p.every == 0 || p.backlog > 0)
	open := g.open && s.now < g.until
	if p.admitted && (!open || p.sequence != g.sequence) {
		p.admitted = false
	}
	s.admit(p, has, open)
	s.launch(p, has)
	s.sayDrained(p, has, open)
	if p.noisy {
		g.bell = true
	}
}

func (s *sim) admit(p *proc, has, open bool) {
	g := p.gate
	if p.admitted || !has {
		return
	}
	if !p.wants {
		p.wants = true
		p.wantSince = s.now
		g.bell = true
	}
	if open && (!p.drained || p.saidSequence != g.sequence) {
		if p.drained {
			p.launches = 0
		}
		p.admitted, p.wants, p.runs, p.drained = true, false, true, false
		p.sequence, p.saidSequence = g.sequence, g.sequence
		p.worst = max(p.worst, s.now-p.wantSince)
		p.waits = append(p.waits, s.now-p.wantSince)
	}
}

// launch lets the process launch what it may.
func (s *sim) launch(p *proc, has bool) {
	kernel := p.kernel
	if kernel == 0 {
		kernel = arbiter.Forever / 4
	}
	catchUp := !p.admitted && p.saidSequence == p.gate.sequence && p.launches < p.gate.finish
	for has && (p.admitted || catchUp) && (p.queued == 0 || p.queued+kernel <= ahead) {
		if p.gang != nil && s.rnd.IntN(4) == 0 {
			return // its thread is elsewhere for a moment
		}
		p.queued += kernel
		p.launches++
		p.runs, p.drained = true, false
		if p.every > 0 {
			p.backlog = max(0, p.backlog-kernel)
			has = p.backlog > 0
		}
		catchUp = catchUp && p.launches < p.gate.finish
	}
}

// sayDrained is the helper thread's part.
func (s *sim) sayDrained(p *proc, has, open bool) {
	if p.queued > 0 || (p.admitted && has) {
		p.idleFor = 0
		return
	}
	p.idleFor += tick
	over := !open || p.sequence != p.gate.sequence
	if !p.runs || p.deaf || (!over && (!p.gate.contended || p.idleFor < 500*us)) {
		return
	}
	if p.gang != nil && p.launches < p.gate.finish && has {
		return
	}
	p.runs, p.drained, p.admitted = false, true, false
	p.gate.bell = true
}

// execute lets the GPUs run: processes with something queued have equal parts.
func (s *sim) execute() {
	for gpu := range byte(8) {
		var running []*proc
		for _, g := range s.gates {
			for _, p := range g.procs {
				if g.gpu == gpu && p.queued > 0 && !p.dead {
					running = append(running, p)
				}
			}
		}
		if len(running) == 0 {
			continue
		}
		s.busy[gpu] += tick
		for left, n := tick, len(running); n > 0; n-- {
			p := running[n-1]
			part := left / arbiter.Time(n)
			left -= part
			s.progress(p, part)
		}
	}
}

func (s *sim) progress(p *proc, part arbiter.Time) {
	used := min(part, p.queued)
	if p.gang != nil {
		for _, other := range p.gang.members {
			if other.done+other.ahead() <= p.done {
				p.gang.spun += part
				p.got += part
				p.gate.gpuTime += float64(part) * p.lie
				return // its peer has not launched this one yet
			}
		}
	}
	p.queued -= used
	p.got += used
	p.gate.gpuTime += float64(used) * p.lie
	if p.current += used; p.kernel > 0 && p.current >= p.kernel {
		p.done += int(p.current / p.kernel)
		p.current %= p.kernel
	}
}

// ahead is how many launches are queued, the one that runs included.
func (p *proc) ahead() int {
	if p.kernel == 0 {
		return 0
	}
	return int((p.queued + p.current) / p.kernel)
}

// arbitrate reads the bells and does what is decided.
func (s *sim) arbitrate() {
	rung := false
	for _, g := range s.gates {
		if g.bell {
			g.bell = false
			rung = true
			s.a.Report(s.now, g.id, s.report(g, false))
		}
	}
	if !rung && s.now < s.next {
		return
	}
	for looks := true; looks; {
		looks = false
		s.steps++
		actions, next := s.a.Step(s.now)
		s.next = next
		for _, action := range append([]arbiter.Action(nil), actions...) {
			if action.Verb == arbiter.Look {
				looks = true
				s.a.Report(s.now, action.Gate, s.report(s.byID[action.Gate], action.Live))
				continue
			}
			s.do(action)
		}
	}
}

func (s *sim) do(action arbiter.Action) {
	g := s.byID[action.Gate]
	switch action.Verb {
	case arbiter.Open, arbiter.Reopen:
		s.mustBeAlone(g)
		g.sequence++
		g.open, g.until, g.contended, g.finish = true, action.Until, action.Contended, 0
	case arbiter.Prolong:
		if action.Until < g.until {
			s.t.Errorf("at %d gate %d is open until %d and then until %d", s.now, g.id, g.until, action.Until)
		}
		g.until, g.contended = action.Until, action.Contended
	case arbiter.Overrun:
		g.overruns++
		g.open, g.overran = false, true
	case arbiter.Close:
		g.open = false
	case arbiter.Shut:
		g.open, g.overran = false, false
	case arbiter.Finish:
		g.finish = int(action.Launches)
	case arbiter.Look:
	}
}

// mustBeAlone fails where another tenant may launch on the GPU, or still runs there and was not given up.
func (s *sim) mustBeAlone(g *simGate) {
	for _, other := range s.gates {
		if other.tenant == g.tenant || other.gpu != g.gpu || other.overran {
			continue
		}
		if other.open && s.now < other.until {
			s.t.Errorf("at %d two tenants have GPU %d: %s and %s", s.now, g.gpu, g.tenant, other.tenant)
		}
		for _, p := range other.procs {
			if p.runs && !p.dead && p.queued > 0 {
				s.t.Errorf("at %d GPU %d is given to %s while %s runs", s.now, g.gpu, g.tenant, other.tenant)
			}
		}
	}
}

func (s *sim) report(g *simGate, live bool) arbiter.Report {
	r := arbiter.Report{GPUTime: uint64(g.gpuTime), Live: live}
	for _, p := range g.procs {
		if p.dead && live {
			continue
		}
		own := p.saidSequence == g.sequence
		r.Wants = r.Wants || p.wants
		r.Again = r.Again || (p.wants && p.drained && own)
		r.Ran = r.Ran || (own && (p.runs || p.drained))
		if p.runs {
			r.Running = true
			r.Launches = max(r.Launches, uint32(p.launches))
		}
	}
	return r
}
