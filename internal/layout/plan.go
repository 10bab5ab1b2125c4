// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// Change says how a GPU gets from the instances that it has to those that it is to have. The lists are ordered by start.
type Change struct {
	// Keep are the instances that stay as they are.
	Keep []gpu.Placement
	// Destroy are those that have to go, first.
	Destroy []gpu.Placement
	// Create are those that are to be made, in the room of those that are gone.
	Create []gpu.Placement
	// MustDrain are those of Destroy that are in use: nothing is done before they are released.
	MustDrain []gpu.Placement
}

// Nothing says whether the GPU is as it is to be.
func (c Change) Nothing() bool { return len(c.Destroy) == 0 && len(c.Create) == 0 }

// Target are the instances that the GPU has after the change.
func (c Change) Target() []gpu.Placement { return byStart(slices.Concat(c.Keep, c.Create)) }

// Plan finds the change that turns what a GPU has into the wanted layout. Of all placements of the layout it takes one
// for which the fewest instances in use have to go, and of those one for which the fewest have to go at all. What is new
// goes where first fit would put it. The same question always has the same answer.
//
// The error is an *ImpossibleError where the board cannot hold the layout.
func Plan(board Board, current []Instance, wanted []Count) (Change, error) {
	r := rulesOf(board)
	if err := r.check(board, wanted); err != nil {
		return Change{}, err
	}
	s := search{rules: &r, wanted: r.counts(wanted)}
	s.divide(current)
	s.choose(0, r.empty(), s.fixed)
	return Diff(current, s.target), nil
}

// Diff finds the change that turns what a GPU has into exactly the given placements, whether or not there are better ones.
func Diff(current []Instance, target []gpu.Placement) Change {
	var c Change
	missing := slices.Clone(target)
	for _, instance := range current {
		if i := slices.Index(missing, instance.Placement); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
			c.Keep = append(c.Keep, instance.Placement)
			continue
		}
		c.Destroy = append(c.Destroy, instance.Placement)
		if instance.InUse {
			c.MustDrain = append(c.MustDrain, instance.Placement)
		}
	}
	c.Create = missing
	for _, list := range [][]gpu.Placement{c.Keep, c.Destroy, c.Create, c.MustDrain} {
		byStart(list)
	}
	return c
}

// counts are a layout's instances by profile; every profile must be the board's.
func (r *rules) counts(layout []Count) []int {
	counts := make([]int, len(r.profiles))
	for _, line := range layout {
		counts[r.index[line.Profile]] += line.Count
	}
	return counts
}

// price is what a choice of instances to keep costs.
type price struct{ inUse, destroyed int }

func (p price) compare(q price) int {
	return cmp.Or(cmp.Compare(p.inUse, q.inUse), cmp.Compare(p.destroyed, q.destroyed))
}

func (p price) destroying(instance Instance) price {
	p.destroyed++
	if instance.InUse {
		p.inUse++
	}
	return p
}

// search looks for the cheapest set of instances to keep beside which the rest of the layout can be placed.
type search struct {
	rules  *rules
	wanted []int
	// candidates are the instances that may stay; fixed is the price of those that may not.
	candidates []Instance
	fixed      price

	found  bool
	best   price
	chosen []gpu.Placement
	target []gpu.Placement
}

// divide tells instances of wanted profiles from those that have to go whatever the placement. Those in use come first,
// so that a cheap choice is found early and cuts off the others; of instances that are alike, those that sit where first
// fit would put them.
func (s *search) divide(current []Instance) {
	for _, instance := range current {
		profile, known := s.rules.index[instance.Profile]
		if known && s.wanted[profile] > 0 && s.rules.onBoard(instance.Start, profile) {
			s.candidates = append(s.candidates, instance)
		} else {
			s.fixed = s.fixed.destroying(instance)
		}
	}
	slices.SortStableFunc(s.candidates, func(a, b Instance) int {
		if a.InUse != b.InUse {
			if a.InUse {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(s.rank(a), s.rank(b)), cmp.Compare(a.Start, b.Start))
	})
}

// rank is where an instance sits in the order of first fit of its profile.
func (s *search) rank(instance Instance) int {
	starts := s.rules.starts(s.rules.index[instance.Profile])
	if i := slices.Index(starts, instance.Start); i >= 0 {
		return i
	}
	return len(starts)
}

// choose decides for the candidates from i on which of them stay.
func (s *search) choose(i int, taken room, so price) {
	if s.found && so.compare(s.best) >= 0 {
		return
	}
	if i == len(s.candidates) {
		if created, fits := s.rules.place(taken, s.wanted); fits {
			s.found, s.best = true, so
			s.target = slices.Concat(s.chosen, created)
		}
		return
	}
	candidate := s.candidates[i]
	profile := s.rules.index[candidate.Profile]
	if next, fits := s.rules.with(taken, profile, candidate.Start); fits && taken.count[profile] < s.wanted[profile] {
		s.chosen = append(s.chosen, candidate.Placement)
		s.choose(i+1, next, so)
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
	s.choose(i+1, taken, so.destroying(candidate))
}
