// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/test/builders"
)

// brute knows a board by trying everything, with the vendor's rules written down once more: instances do not overlap,
// there is a most of each profile, and nobody takes a media engine that the board does not have.
type brute struct {
	board      layout.Board
	placements []gpu.Placement
	// sets are all sets of placements that the board can hold, as bits of placements.
	sets []uint32
	// byLayout are the sets of each layout.
	byLayout map[string][]uint32
}

func boards(t *testing.T) map[string]layout.Board {
	t.Helper()
	boards := map[string]layout.Board{}
	for key, g := range builders.Boards(t) {
		boards[key] = layout.BoardOf(g)
	}
	return boards
}

// geometries are the boards without those that are divided like another one.
func geometries(t *testing.T) map[string]layout.Board {
	t.Helper()
	all := boards(t)
	seen := map[string]bool{}
	distinct := map[string]layout.Board{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		var shapes []string
		for _, p := range all[key].Profiles {
			shapes = append(shapes, fmt.Sprint(p.ComputeSlices, p.MemorySlices, p.Starts, p.Max, p.OFA))
		}
		shape := strings.Join(shapes, ";")
		if !seen[shape] {
			seen[shape] = true
			distinct[key] = all[key]
		}
	}
	return distinct
}

func newBrute(board layout.Board) *brute {
	b := &brute{board: board, byLayout: map[string][]uint32{}}
	for _, p := range board.Profiles {
		for _, start := range p.Starts {
			b.placements = append(b.placements, gpu.Placement{Profile: p.Name, Start: start})
		}
	}
	b.grow(0, 0)
	return b
}

func (b *brute) grow(set uint32, from int) {
	b.sets = append(b.sets, set)
	key := keyOf(layout.Of(b.of(set)))
	b.byLayout[key] = append(b.byLayout[key], set)
	for i := from; i < len(b.placements); i++ {
		if next := set | 1<<i; b.holds(next) {
			b.grow(next, i+1)
		}
	}
}

// holds says whether the board can hold all placements of a set.
func (b *brute) holds(set uint32) bool {
	slots := make([]bool, b.board.MemorySlices)
	count := map[string]int{}
	var used gpu.Profile
	full := b.full()
	for _, placement := range b.of(set) {
		p := b.profile(placement.Profile)
		for slot := placement.Start; slot < placement.Start+p.MemorySlices; slot++ {
			if slots[slot] {
				return false
			}
			slots[slot] = true
		}
		if count[p.Name]++; count[p.Name] > p.Max {
			return false
		}
		used.OFA += p.OFA
		used.Decoders += p.Decoders
		used.Encoders += p.Encoders
		used.JPEG += p.JPEG
	}
	if used.OFA > 1 {
		return false
	}
	// Only the boards with twelve memory slices have profiles that take all engines; the figures of others are no limits.
	return b.board.MemorySlices != 12 ||
		used.Decoders <= full.Decoders && used.Encoders <= full.Encoders && used.JPEG <= full.JPEG
}

func (b *brute) of(set uint32) []gpu.Placement {
	var placements []gpu.Placement
	for ; set != 0; set &= set - 1 {
		placements = append(placements, b.placements[bits.TrailingZeros32(set)])
	}
	return placements
}

func (b *brute) profile(name string) gpu.Profile {
	i := slices.IndexFunc(b.board.Profiles, func(p gpu.Profile) bool { return p.Name == name })
	return b.board.Profiles[i]
}

func (b *brute) full() gpu.Profile {
	return slices.MaxFunc(b.board.Profiles, func(p, q gpu.Profile) int { return p.MemorySlices - q.MemorySlices })
}

// bitsOf is a list of placements as a set; false where one is none of the board's, or twice there.
func (b *brute) bitsOf(placements []gpu.Placement) (uint32, bool) {
	var set uint32
	for _, p := range placements {
		i := slices.Index(b.placements, p)
		if i < 0 || set&(1<<i) != 0 {
			return 0, false
		}
		set |= 1 << i
	}
	return set, true
}

// cheapest is the least number of instances in use, then of instances at all, that have to go for a layout.
func (b *brute) cheapest(current, inUse uint32, wanted string) (int, int) {
	best := [2]int{32, 32}
	for _, set := range b.byLayout[wanted] {
		gone := current &^ set
		price := [2]int{bits.OnesCount32(gone & inUse), bits.OnesCount32(gone)}
		if slices.Compare(price[:], best[:]) < 0 {
			best = price
		}
	}
	return best[0], best[1]
}

func keyOf(counts []layout.Count) string { return fmt.Sprint(counts) }

// everyMultiset calls f with every multiset of at most n instances of the board's profiles, the impossible ones too.
func everyMultiset(board layout.Board, n int, f func([]layout.Count)) {
	names := make([]string, len(board.Profiles))
	for i, p := range board.Profiles {
		names[i] = p.Name
	}
	slices.Sort(names)
	var grow func(counts []layout.Count, profile, left int)
	grow = func(counts []layout.Count, profile, left int) {
		if profile == len(names) {
			f(counts)
			return
		}
		grow(counts, profile+1, left)
		for n := 1; n <= left; n++ {
			grow(append(slices.Clone(counts), layout.Count{Profile: names[profile], Count: n}), profile+1, left-n)
		}
	}
	grow(nil, 0, n)
}
