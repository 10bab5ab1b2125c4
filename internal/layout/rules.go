// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"

	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// maxSlices is how many memory slices a board may have: they are the bits of a word.
const maxSlices = 64

// rules say which instances a board can hold at once: they may not overlap, there is a most of each profile, and the
// media engines must suffice.
type rules struct {
	board Board
	// profiles are ordered from large to small: what is hardest to place is placed first.
	profiles []gpu.Profile
	// tried are each profile's starts in the order in which they are tried; nil until they are asked for.
	tried [][]int
	// index finds a profile by name.
	index map[string]int
	slots int
	// ofa is how many there are; 0: the board does not say.
	ofa int
	// media are the other engines where they can run out before the memory slices do.
	media *engines
}

// engines are the media engines of an instance or a board.
type engines struct{ decoders, encoders, jpeg int }

// room is what a set of instances takes of a board.
type room struct {
	slices uint64
	slots  int
	count  []int
	ofa    int
	media  engines
}

func rulesOf(b Board) rules {
	r := rules{board: b, index: map[string]int{}, slots: min(b.MemorySlices, maxSlices)}
	r.profiles = slices.SortedFunc(slices.Values(b.Profiles), func(a, b gpu.Profile) int {
		return cmp.Or(cmp.Compare(b.MemorySlices, a.MemorySlices), cmp.Compare(b.ComputeSlices, a.ComputeSlices),
			cmp.Compare(b.Name, a.Name))
	})
	// What has no size, or not the board's, is no profile.
	r.profiles = slices.DeleteFunc(r.profiles, func(p gpu.Profile) bool { return p.MemorySlices < 1 || p.MemorySlices > r.slots })
	r.tried = make([][]int, len(r.profiles))
	for i, p := range r.profiles {
		r.index[p.Name] = i
	}
	r.limitEngines()
	return r
}

// starts are where instances of a profile can begin, in the order of first fit: what is added later then finds room without
// moving what is there.
func (r *rules) starts(profile int) []int {
	if r.tried[profile] == nil {
		p := r.profiles[profile]
		order := devices.StartOrder(gpu.GPU{MemorySlices: r.board.MemorySlices, Profiles: r.board.Profiles}, p)
		r.tried[profile] = slices.DeleteFunc(order, func(start int) bool { return !r.onBoard(start, profile) })
	}
	return r.tried[profile]
}

// onBoard says whether an instance that begins there ends on the board.
func (r *rules) onBoard(start, profile int) bool {
	return start >= 0 && start+r.profiles[profile].MemorySlices <= r.slots
}

// limitEngines says which engines are counted, exactly as the published counters do: the one OFA everywhere, the others
// only where an instance smaller than the GPU can take all decoders. A rule more than needed would forbid valid layouts
// wherever the reported engine numbers are off.
func (r *rules) limitEngines() {
	if len(r.profiles) == 0 {
		return
	}
	full := r.profiles[0]
	r.ofa = full.OFA
	takesAll := func(p gpu.Profile) bool {
		return p.MemorySlices < full.MemorySlices && full.Decoders > 0 && p.Decoders >= full.Decoders
	}
	if slices.ContainsFunc(r.profiles, takesAll) {
		r.media = &engines{full.Decoders, full.Encoders, full.JPEG}
	}
}

func (r *rules) empty() room { return room{count: make([]int, len(r.profiles))} }

// with adds an instance to what is taken; false where it has no room.
func (r *rules) with(taken room, profile, start int) (room, bool) {
	p := r.profiles[profile]
	mask := (uint64(1)<<p.MemorySlices - 1) << start
	if taken.slices&mask != 0 || taken.count[profile] >= p.Max {
		return taken, false
	}
	next := room{
		slices: taken.slices | mask, slots: taken.slots + p.MemorySlices, count: slices.Clone(taken.count), ofa: taken.ofa + p.OFA,
		media: engines{taken.media.decoders + p.Decoders, taken.media.encoders + p.Encoders, taken.media.jpeg + p.JPEG},
	}
	next.count[profile]++
	if r.ofa > 0 && next.ofa > r.ofa {
		return taken, false
	}
	return next, r.media == nil || within(next.media, *r.media)
}

// within compares engines with what the board has; what the board says it has none of is not limited.
func within(used, has engines) bool {
	fits := func(used, has int) bool { return has == 0 || used <= has }
	return fits(used.decoders, has.decoders) && fits(used.encoders, has.encoders) && fits(used.jpeg, has.jpeg)
}

// place completes what is taken to the wanted number of instances of each profile. It tries everything, so that it finds
// a placement whenever one exists.
func (r *rules) place(taken room, wanted []int) ([]gpu.Placement, bool) {
	need := taken.slots
	for profile, n := range wanted {
		need += (n - taken.count[profile]) * r.profiles[profile].MemorySlices
	}
	if need > r.slots {
		return nil, false
	}
	return r.placeFrom(taken, wanted, 0, 0)
}

// placeFrom places what is missing from the given profile on, that profile's starts from the given one on: instances of
// one profile are alike, so that each set of starts is tried once.
func (r *rules) placeFrom(taken room, wanted []int, profile, from int) ([]gpu.Placement, bool) {
	for profile < len(wanted) && wanted[profile] == taken.count[profile] {
		profile, from = profile+1, 0
	}
	if profile == len(wanted) {
		return nil, true
	}
	starts := r.starts(profile)
	for i := from; i < len(starts); i++ {
		start := starts[i]
		next, fits := r.with(taken, profile, start)
		if !fits {
			continue
		}
		if rest, found := r.placeFrom(next, wanted, profile, i+1); found {
			return append(rest, gpu.Placement{Profile: r.profiles[profile].Name, Start: start}), true
		}
	}
	return nil, false
}
