// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	decide "github.com/sluice-gpu/sluice/internal/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	// ringsSlice is how many rings a slice explains, where the last is shortSlice ago. Each process of the share, up to
	// mostProcesses, explains as many and one ring more is served, once in each ringAgain. ringsKept bounds how many are kept.
	ringsSlice    = 2
	mostProcesses = 16
	ringsKept     = 2 * ringsSlice * (mostProcesses + 1)
	ringAgain     = decide.Time(20_000_000)
	shortSlice    = decide.Time(1_000_000)
	// maskMin is how long a bell that rings more often is not heard; it doubles up to maskMax.
	maskMin = decide.Time(1_000_000)
	maskMax = decide.Time(50_000_000)
	// emptyAfter is after how many rings what was written into a bell is taken out. A full one could not be rung.
	emptyAfter = 256
	// bellBuffer takes out all that a bell holds.
	bellBuffer = 64 << 10
)

// seat is a share among those that are arbitrated.
type seat struct {
	turn  *limits.Turn
	gate  decide.Gate
	place int32

	// rings is how often the bell may be served, as of `at`; mask how long it is not heard then; until when it is not, 0 while
	// it is. processes is how many say something.
	rings     int
	at        decide.Time
	mask      decide.Time
	until     decide.Time
	processes int
	// slice is when a slice last explained rings, spoke when its processes did.
	slice, spoke decide.Time
	// count is how often it was served since it was emptied.
	count int
	// ringing says that it is already in the list of those to be served.
	ringing bool
	waking  bool
}

// opened takes in that a slice begins, at which its processes have something to say.
func (s *seat) opened(now decide.Time) {
	if now-s.slice < shortSlice {
		return
	}
	s.rings = min(ringsKept, s.rings+ringsSlice)
	if now-s.spoke >= ringAgain {
		s.spoke = now
		s.rings = min(ringsKept, s.rings+ringsSlice*min(s.processes, mostProcesses))
	}
	s.slice = now
	s.mask = maskMin
}

// allow says whether the bell may be served now. A tenant can ring in a loop: what its slices do not explain is served ever
// more seldom, since the thread that does it goes before all others of the machine.
func (s *seat) allow(now decide.Time) bool {
	if again := (now - s.at) / ringAgain; again > 0 {
		s.rings = min(ringsKept, s.rings+int(min(again, ringsKept)))
		s.at = now
	}
	if s.rings > 0 {
		s.rings--
		return true
	}
	s.until = now + s.mask
	s.mask = min(maskMax, 2*s.mask)
	return false
}

// digest is what the decision needs of what the processes say.
func digest(paces limits.Paces, sequence uint32, live bool) decide.Report {
	r := decide.Report{GPUTime: paces.GPUTime, Live: live}
	for _, p := range paces.List {
		wants := p.Bits&limits.PaceWants != 0
		drained := p.Bits&limits.PaceDrained != 0
		running := p.Bits&limits.PaceRuns != 0 && !drained
		own := p.Sequence == sequence
		r.Wants = r.Wants || wants
		r.Again = r.Again || (wants && drained && own)
		r.Ran = r.Ran || (own && (running || drained))
		switch {
		case running:
			r.Running = true
			r.Launches = max(r.Launches, p.Launches)
		case wants && own:
			r.Waiting = max(r.Waiting, p.Launches)
		}
	}
	return r
}
