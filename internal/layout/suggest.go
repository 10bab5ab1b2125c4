// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// All are all layouts that a board can hold, the empty one not among them.
func All(board Board) [][]Count {
	r := rulesOf(board)
	var layouts [][]Count
	r.every(make([]int, len(r.profiles)), 0, func(counts []int) {
		if layout := r.layout(counts); len(layout) > 0 {
			layouts = append(layouts, layout)
		}
	})
	return layouts
}

// Suggest names up to n layouts that a board can hold and that come nearest to the wanted one: the fewest of its
// instances are dropped or replaced, and these by what is nearest to them in size. It adds no instances, and takes a
// profile that the board does not know for one of the size that its name tells.
func Suggest(board Board, wanted []Count, n int) [][]Count {
	r := rulesOf(board)
	want := r.counts(known(wanted, r.index))
	for profile := range want {
		want[profile] = min(want[profile], maxCounted)
	}
	strangers := strangers(wanted, r.index)
	var options []option
	r.every(make([]int, len(r.profiles)), 0, func(counts []int) {
		if o, possible := r.option(want, strangers, counts); possible {
			options = append(options, o)
		}
	})
	slices.SortStableFunc(options, option.compare)
	nearest := make([][]Count, 0, n)
	for _, o := range options[:min(n, len(options))] {
		nearest = append(nearest, o.layout)
	}
	return nearest
}

// every calls f with each set of instances that can be placed, by profile. More of a set that cannot be placed cannot be
// placed either.
func (r *rules) every(counts []int, profile int, f func([]int)) {
	if profile == len(counts) {
		f(counts)
		return
	}
	for n := 0; n <= r.profiles[profile].Max; n++ {
		counts[profile] = n
		if _, fits := r.place(r.empty(), counts); !fits {
			break
		}
		r.every(counts, profile+1, f)
	}
	counts[profile] = 0
}

// layout writes counts down, small profiles first.
func (r *rules) layout(counts []int) []Count {
	var layout []Count
	for profile, n := range slices.Backward(counts) {
		if n > 0 {
			layout = append(layout, Count{Profile: r.profiles[profile].Name, Count: n})
		}
	}
	return layout
}

// known are the lines that speak of the board's profiles.
func known(wanted []Count, index map[string]int) []Count {
	return slices.DeleteFunc(slices.Clone(wanted), func(line Count) bool {
		_, found := index[line.Profile]
		return !found || line.Count < 1
	})
}

// size is what makes one instance like another.
type size struct {
	compute int
	// memory is in slices; 0 where it is not known.
	memory int
	// suffix is what follows the memory in the name: +me, +gfx, ...
	suffix string
}

// maxCounted bounds how many wanted instances of a kind are looked at: no board holds more.
const maxCounted = maxSlices

// strangers are the sizes of the wanted instances whose profile the board does not know.
func strangers(wanted []Count, index map[string]int) []size {
	var sizes []size
	for _, line := range wanted {
		if _, found := index[line.Profile]; found {
			continue
		}
		for range min(line.Count, maxCounted-len(sizes)) {
			sizes = append(sizes, size{compute: computeOf(line.Profile), suffix: suffixOf(line.Profile)})
		}
	}
	return sizes
}

// computeOf reads the compute slices from a profile's name, 3 from 3g.40gb; 1 where the name does not tell.
func computeOf(profile string) int {
	digits, _, found := strings.Cut(profile, "g.")
	if n, err := strconv.Atoi(digits); found && err == nil && n > 0 {
		return n
	}
	return 1
}

// suffixOf is what follows the memory in a profile's name, +me in 1g.10gb+me.
func suffixOf(profile string) string {
	_, suffix, _ := strings.Cut(profile, "gb")
	return suffix
}

// option is a layout that the board can hold, and how far it is from the wanted one.
type option struct {
	layout []Count
	// changed is how many wanted instances are dropped or replaced.
	changed int
	distance
}

func (o option) compare(p option) int {
	return cmp.Or(cmp.Compare(o.changed, p.changed), cmp.Compare(o.compute, p.compute), cmp.Compare(o.memory, p.memory),
		cmp.Compare(o.suffixes, p.suffixes), cmp.Compare(len(o.layout), len(p.layout)),
		strings.Compare(Describe(o.layout), Describe(p.layout)))
}

// option compares a layout with the wanted one; false where it is none or has more instances.
func (r *rules) option(want []int, strangers []size, counts []int) (option, bool) {
	gone := slices.Clone(strangers)
	var come []size
	for profile, p := range r.profiles {
		for range max(0, want[profile]-counts[profile]) {
			gone = append(gone, sizeOf(p))
		}
		for range max(0, counts[profile]-want[profile]) {
			come = append(come, sizeOf(p))
		}
	}
	layout := r.layout(counts)
	if len(layout) == 0 || len(come) > len(gone) {
		return option{}, false
	}
	return option{layout: layout, changed: len(gone), distance: between(gone, come)}, true
}

func sizeOf(p gpu.Profile) size { return size{p.ComputeSlices, p.MemorySlices, suffixOf(p.Name)} }

// distance is how far what comes is from what goes: in compute slices, in memory slices, in names.
type distance struct{ compute, memory, suffixes int }

// between pairs what goes with what comes, large with large; what has no partner is lost whole.
func between(gone, come []size) distance {
	descending := func(a, b size) int {
		return cmp.Or(cmp.Compare(b.compute, a.compute), cmp.Compare(b.memory, a.memory), cmp.Compare(b.suffix, a.suffix))
	}
	slices.SortFunc(gone, descending)
	slices.SortFunc(come, descending)
	var d distance
	for i, g := range gone {
		c := size{suffix: g.suffix}
		if i < len(come) {
			c = come[i]
		}
		d.compute += abs(g.compute - c.compute)
		// Where the memory is not known, the least that comes with the compute is taken for the nearest.
		d.memory += abs(g.memory - c.memory)
		if g.suffix != c.suffix {
			d.suffixes++
		}
	}
	return d
}

func abs(n int) int { return max(n, -n) }
