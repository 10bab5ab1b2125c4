// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"slices"
	"testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/test/builders"
)

// counters are what a GPU of a dynamic pool publishes: what there is, and what each placement takes of it.
type counters struct {
	total map[string]int64
	taken []map[string]int64
}

func publishedCounters(g gpu.GPU, placements []gpu.Placement) counters {
	published, set := devices.Build(devices.Offer{GPU: g, Decision: v1alpha1.GPUDecision{
		Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive,
		MemoryPercent: 100, ComputePercent: 100,
	}})
	c := counters{total: map[string]int64{}, taken: make([]map[string]int64, len(placements))}
	for name, counter := range set.Counters {
		c.total[name] = counter.Value.Value()
	}
	for _, d := range published {
		_, placement, _ := devices.FindPlacement(g, 0, d.Name)
		taken := map[string]int64{}
		for name, counter := range d.ConsumesCounters[0].Counters {
			taken[name] = counter.Value.Value()
		}
		c.taken[slices.Index(placements, placement)] = taken
	}
	return c
}

// allow says whether the scheduler may allocate all placements of a set.
func (c counters) allow(set uint32) bool {
	used := map[string]int64{}
	for i, taken := range c.taken {
		if set&(1<<i) == 0 {
			continue
		}
		for name, n := range taken {
			if used[name] += n; used[name] > c.total[name] {
				return false
			}
		}
	}
	return true
}

// TestTheRulesAreThoseOfTheCounters checks that a static layout and the scheduler, which goes by the published counters,
// agree about every set of placements on every board. Of some boards the data does not say who has the one OFA: there
// the counters know no most of a profile.
func TestTheRulesAreThoseOfTheCounters(t *testing.T) {
	t.Parallel()
	for key, g := range builders.Boards(t) {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBrute(layout.BoardOf(g))
			c := publishedCounters(g, b.placements)
			for _, set := range b.sets {
				if !c.allow(set) {
					t.Fatalf("%v: the counters forbid what the board can hold", b.of(set))
				}
				for i := range b.placements {
					more := set | 1<<i
					if more != set && !b.holds(more) && c.allow(more) && !b.tooMany(more) {
						t.Fatalf("%v: the counters allow what the board cannot hold", b.of(more))
					}
				}
			}
		})
	}
}

// tooMany says whether a set has more instances of a profile than the board takes.
func (b *brute) tooMany(set uint32) bool {
	return slices.ContainsFunc(layout.Of(b.of(set)), func(line layout.Count) bool {
		return line.Count > b.profile(line.Profile).Max
	})
}
