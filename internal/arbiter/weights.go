// SPDX-License-Identifier: Apache-2.0

package arbiter

// weigh gives all tenants their weights and rates anew.
func (a *Arbiter) weigh(now Time) {
	for _, l := range a.lines {
		l.dirty = true
		for _, t := range l.tenants {
			t.refill(now)
			weight, rate := 1.0, 1.0
			capped := false
			for _, g := range t.gpus {
				w, r := g.weightOf(t)
				weight, rate = min(weight, w), min(rate, r)
			}
			for _, g := range t.gates {
				capped = capped || (g.share.Capped && g.share.Compute > 0)
			}
			t.weight, t.rate = weight, rate
			// A cap of all of the GPU is none.
			t.limit(now, capped && weight < 1)
		}
	}
}

// limit caps a tenant or takes its cap from it. One that just got its cap begins with nothing earned, and soon ends a slice
// that it was given without.
func (t *tenant) limit(now Time, capped bool) {
	if capped && !t.capped {
		if t.state == Opened {
			t.rebase(now)
			t.end = min(t.end, now+t.need())
		}
		t.tokens = 0
	}
	t.capped = capped
	t.eligible = t.state == Closed && t.mayRun(now)
}

// mayRun says whether a tenant may have a slice.
func (t *tenant) mayRun(now Time) bool {
	return now >= t.backAt && (!t.capped || t.tokens >= float64(t.need()))
}

// mayRunAt is when one that may not will.
func (t *tenant) mayRunAt() Time {
	if !t.capped {
		return t.backAt
	}
	return max(t.backAt, t.earnedAt())
}

// asked is what a tenant asked for of a GPU.
func (g *gpu) asked(t *tenant) (sum uint32) {
	for _, gate := range t.gates {
		if gate.gpu == g {
			sum += gate.share.Compute
		}
	}
	return sum
}

// weightOf is the part of the GPU that a tenant asked for, and what that comes to where the tenants asked for more than
// there is and all want it. A tenant without a share has its part of the point that all such have together.
func (g *gpu) weightOf(t *tenant) (weight, rate float64) {
	var sum, without uint32
	for _, other := range g.tenants {
		asked := g.asked(other)
		sum += asked
		if asked == 0 {
			without++
		}
	}
	own := float64(g.asked(t))
	if own == 0 {
		own = bestEffort / float64(without)
	}
	weight = min(1, own/WholeGPU)
	return weight, weight / max(1, float64(sum)/WholeGPU)
}

// longest is the tenant's slice while others want the GPU: short enough that a tiny share has one in each round.
func (t *tenant) longest() Time {
	return max(shortSlice, min(longSlice, Time(t.rate*float64(round))))
}

// need is how many tokens a tenant with a cap needs for a slice.
func (t *tenant) need() Time {
	return min(t.longest(), max(capSlice, Time(t.rate*float64(capRound))))
}

// refill gives a tenant with a cap what it has earned: by what it asked for, however much others asked for that they do not use. What it earned while it wanted nothing is kept for one slice, and
// what it earned while it waited for two of the longest.
func (t *tenant) refill(now Time) {
	elapsed := now - t.at
	t.at = now
	t.tokens += t.weight * float64(elapsed)
	if t.state != Closed {
		return // what it uses is not yet taken off
	}
	depth := t.need()
	if t.wants {
		depth = 2 * t.longest()
	}
	t.tokens = min(t.tokens, float64(depth))
}

// earnedAt is when a tenant with a cap will have enough for a slice.
func (t *tenant) earnedAt() Time {
	missing := float64(t.need()) - t.tokens
	// Rounded up, so that it has enough then.
	return t.at + max(0, Time(missing/t.weight)+1)
}

// virtualAt is the tenant's virtual time with what it has used of a slice that is not over.
func (t *tenant) virtualAt(now Time) float64 {
	if t.state == Opened || t.state == Draining {
		return t.virtual + float64(now-t.from)/t.weight
	}
	return t.virtual
}

// contends says whether a tenant counts for a GPU's virtual time: it runs, or it could.
func (t *tenant) contends() bool {
	switch t.state {
	case Opened, Draining:
		return true
	case Closed:
		return t.wants && t.eligible
	case Overrunning:
	}
	return false
}

// virtualAt is the GPU's virtual time: the mean, by weight, of those who want it, but for one. Where nobody does it goes
// forward with the clock, so that debts are forgotten in the end.
func (g *gpu) virtualAt(now Time, but *tenant) float64 {
	sum, weights := 0.0, 0.0
	for _, t := range g.tenants {
		if t != but && t.contends() {
			sum += t.virtualAt(now) * t.weight
			weights += t.weight
		}
	}
	if weights == 0 {
		return g.virtual + float64(now-g.at)
	}
	return sum / weights
}

// around is the virtual time of the tenant's GPUs without itself.
func (t *tenant) around(now Time) float64 {
	least := 0.0
	for i, g := range t.gpus {
		if v := g.virtualAt(now, t); i == 0 || v < least {
			least = v
		}
	}
	return least
}

// rank places a tenant in the order of turns. One that ended another's slice is first. Then come those that are not ahead of
// the GPU's virtual time, by when they should have had their slice, which favours nobody by the length of slices; then the
// others, by how far ahead they are. The means of its GPUs are known.
func (t *tenant) rank() {
	t.class, t.key = 2, t.virtual
	for _, g := range t.gpus {
		// A tenant alone is where the mean is, but for rounding.
		if t.virtual <= g.mean+1 {
			t.class, t.key = 1, t.virtual+float64(t.longest())/t.weight
		}
	}
	if t.rushed {
		t.class = 0
	}
}
