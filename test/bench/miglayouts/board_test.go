// SPDX-License-Identifier: Apache-2.0

// Package miglayouts measures how many requests for MIG instances find a place when instances come and go: on the order in
// which the placements are published, which is what the scheduler takes first, against other ways to choose.
package miglayouts

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/test/builders"
)

// set are the placements that are taken on one GPU, as bits of the board's.
type set uint32

// place is one placement of a profile.
type place struct {
	profile, start, size int
	counters             map[string]int64
}

// board is a GPU as it is published.
type board struct {
	profiles []string
	places   []place
	total    map[string]int64
	// fitting says for a set and a profile which places are free; filled when asked for.
	fitting map[set][][]int
}

// published is the board as the node agent publishes it, with the places in that order.
func published(tb testing.TB, key string) *board {
	tb.Helper()
	g := builders.Boards(tb)[key]
	list, counters := devices.Build(devices.Offer{GPU: g, Decision: v1alpha1.GPUDecision{
		Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive,
		MemoryPercent: 100, ComputePercent: 100,
	}})
	b := &board{total: map[string]int64{}, fitting: map[set][][]int{}}
	for name, c := range counters.Counters {
		b.total[name] = c.Value.Value()
	}
	for _, d := range list {
		profile, at, found := devices.FindPlacement(g, 0, d.Name)
		if !found {
			tb.Fatalf("%s is no placement", d.Name)
		}
		index := slices.Index(b.profiles, at.Profile)
		if index < 0 {
			index = len(b.profiles)
			b.profiles = append(b.profiles, at.Profile)
		}
		b.places = append(b.places, place{index, at.Start, profile.MemorySlices, consumed(d)})
	}
	return b
}

func consumed(d resourceapi.Device) map[string]int64 {
	counters := map[string]int64{}
	for name, c := range d.ConsumesCounters[0].Counters {
		counters[name] = c.Value.Value()
	}
	return counters
}

// free are the places of each profile that a set leaves free, in the order of publishing.
func (b *board) free(taken set) [][]int {
	if free, known := b.fitting[taken]; known {
		return free
	}
	left := maps.Clone(b.total)
	for i, p := range b.places {
		if taken&(1<<i) != 0 {
			for name, n := range p.counters {
				left[name] -= n
			}
		}
	}
	free := make([][]int, len(b.profiles))
	for i, p := range b.places {
		fits := true
		for name, n := range p.counters {
			fits = fits && n <= left[name]
		}
		if fits {
			free[p.profile] = append(free[p.profile], i)
		}
	}
	b.fitting[taken] = free
	return free
}

// chooser chooses one of the free places, of which there is at least one.
type chooser func(taken set, free []int) int

// first takes the place that is published first, as the scheduler does.
func first(_ set, free []int) int { return free[0] }

// ascending takes the lowest start, as the scheduler would if placements were published by their start.
func (b *board) ascending(_ set, free []int) int {
	return slices.MinFunc(free, func(x, y int) int { return cmp.Compare(b.places[x].start, b.places[y].start) })
}
