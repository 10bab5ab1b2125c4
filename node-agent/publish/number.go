// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"slices"
)

// number gives each GPU the number of its device names: NVML's minor, except that a GPU keeps the number under which a
// claim knows it. A GPU whose own number is kept for another takes the lowest that nobody has.
func number(outcomes []Outcome, in Input) {
	taken := map[int]bool{}
	pinned := func(o *Outcome) bool {
		before := in.Record.ByUUID(o.Facts.UUID)
		// Without a look, minors are no better known than before.
		return before != nil && (in.InUse[o.Facts.UUID] > 0 || o.Seen == nil)
	}
	var rest []*Outcome
	for i := range outcomes {
		o := &outcomes[i]
		if !pinned(o) {
			// What was never seen has no number, and takes none.
			if o.Seen != nil {
				rest = append(rest, o)
			}
			continue
		}
		o.Minor = in.Record.ByUUID(o.Facts.UUID).Minor
		if o.Form != nil {
			taken[o.Minor] = true
		}
	}
	// Own numbers first: whoever must give way must not take a number that is another GPU's own.
	var displaced []*Outcome
	for _, o := range rest {
		o.Minor = o.Facts.Minor
		if taken[o.Minor] {
			displaced = append(displaced, o)
			continue
		}
		taken[o.Minor] = true
	}
	slices.SortFunc(displaced, func(a, b *Outcome) int { return cmp.Compare(a.Facts.Minor, b.Facts.Minor) })
	for _, o := range displaced {
		o.Minor = 0
		for taken[o.Minor] {
			o.Minor++
		}
		taken[o.Minor] = true
	}
}
