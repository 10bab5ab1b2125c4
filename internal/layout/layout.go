// SPDX-License-Identifier: Apache-2.0

// Package layout decides where the MIG instances of a static layout sit on a GPU. It finds a placement whenever one
// exists, and of all that exist the one that leaves most of what is there alone.
package layout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// Board is what NVML says of how a GPU can be divided.
type Board struct {
	// Product is the name as NVML gives it; it only appears in sentences.
	Product string
	// MemorySlices is how many memory slices the board divides into.
	MemorySlices int
	// Profiles are the instance profiles that the board offers.
	Profiles []gpu.Profile
}

// BoardOf is the board of a GPU.
func BoardOf(g gpu.GPU) Board {
	return Board{Product: g.Product, MemorySlices: g.MemorySlices, Profiles: g.Profiles}
}

// Count is a line of a layout: so many instances of one profile.
type Count struct {
	Profile string
	Count   int
}

// Instance is an instance that exists.
type Instance struct {
	gpu.Placement
	// InUse is true where a claim or a process holds the instance.
	InUse bool
}

// Describe writes a layout as people do: 4 × 1g.10gb, 1 × 3g.40gb.
func Describe(layout []Count) string {
	if len(layout) == 0 {
		return "no instance"
	}
	lines := make([]string, len(layout))
	for i, line := range layout {
		lines[i] = fmt.Sprintf("%d × %s", line.Count, line.Profile)
	}
	return strings.Join(lines, ", ")
}

// Of counts placements by profile, ordered by name.
func Of(placements []gpu.Placement) []Count {
	tally := map[string]int{}
	for _, p := range placements {
		tally[p.Profile]++
	}
	return listed(tally)
}

// Same says whether two layouts have the same instances, however they are written down.
func Same(a, b []Count) bool { return maps.Equal(total(a), total(b)) }

// total adds up the lines of a layout; lines without instances vanish.
func total(layout []Count) map[string]int {
	sum := map[string]int{}
	for _, line := range layout {
		if line.Count > 0 {
			sum[line.Profile] += line.Count
		}
	}
	return sum
}

// listed is a tally as a layout, ordered by name.
func listed(tally map[string]int) []Count {
	layout := make([]Count, 0, len(tally))
	for _, profile := range slices.Sorted(maps.Keys(tally)) {
		layout = append(layout, Count{Profile: profile, Count: tally[profile]})
	}
	return layout
}

// byStart orders placements as they sit on the GPU.
func byStart(placements []gpu.Placement) []gpu.Placement {
	slices.SortFunc(placements, func(a, b gpu.Placement) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Profile, b.Profile))
	})
	return placements
}
