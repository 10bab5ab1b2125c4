// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	decide "github.com/sluice-gpu/sluice/internal/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	// rings is how often a bell is served at once, and a millisecond later once more.
	rings = 4
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

	// heard is how often the bell may be served now, at `at`; mask how long it is not heard when that is over; until when
	// it is masked, 0 while it is not.
	heard decide.Time
	at    decide.Time
	mask  decide.Time
	until decide.Time
	// count is how often it was served since it was emptied.
	count int
	// ringing says that it is already in the list of those to be served.
	ringing bool
	waking  bool
}

// allow says whether the bell may be served now. Tenants can ring in a loop: each is served so often as a tenant needs that
// comes and goes with each slice, and after that not for a while, which grows as long as it goes on.
func (s *seat) allow(now decide.Time) bool {
	s.heard = min(rings*maskMin, s.heard+now-s.at)
	s.at = now
	if s.heard >= rings*maskMin {
		s.mask = maskMin
	}
	if s.heard >= maskMin {
		s.heard -= maskMin
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
		if running {
			r.Running = true
			r.Launches = max(r.Launches, p.Launches)
		}
	}
	return r
}
