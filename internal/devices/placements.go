// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// placements offers every MIG placement of the GPU, smallest profile first, each profile's starts in the order that
// keeps the larger profiles alive longest. Counters keep two overlapping placements from being allocated together.
func placements(o Offer) ([]resourceapi.Device, *resourceapi.CounterSet) {
	engines := engineCounters(o.GPU)
	set := &resourceapi.CounterSet{Name: Name(o.Minor), Counters: map[string]resourceapi.Counter{}}
	for slice := range o.GPU.MemorySlices {
		set.Counters[sliceCounter(slice)] = resourceapi.Counter{Value: count(1)}
	}
	for name, of := range engines {
		if total := of(fullProfile(o.GPU)); total > 0 {
			set.Counters[name] = resourceapi.Counter{Value: count(int64(total))}
		}
	}
	var devices []resourceapi.Device
	for _, profile := range bySize(o.GPU.Profiles) {
		for _, start := range StartOrder(o.GPU, profile) {
			devices = append(devices, placement(o, profile, start, set))
		}
	}
	return devices, set
}

func placement(o Offer, profile gpu.Profile, start int, set *resourceapi.CounterSet) resourceapi.Device {
	consumed := map[string]resourceapi.Counter{}
	for slice := start; slice < start+profile.MemorySlices; slice++ {
		consumed[sliceCounter(slice)] = resourceapi.Counter{Value: count(1)}
	}
	for name, of := range engineCounters(o.GPU) {
		if _, limited := set.Counters[name]; limited && of(profile) > 0 {
			consumed[name] = resourceapi.Counter{Value: count(int64(of(profile)))}
		}
	}
	return resourceapi.Device{
		Name: PlacementName(o.Minor, gpu.Placement{Profile: profile.Name, Start: start}),
		// The instance's own UUID is known only once it exists; rewriting the slice then would cost a write a pod.
		Attributes:       attributes(o, profile.Name, ""),
		Capacity:         fixedCapacity(profile.MemoryBytes, profile.Compute(o.GPU.ComputeSlices)),
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: consumed}},
		Taints:           taints(o.Decision.Taint),
	}
}

func sliceCounter(slice int) string { return fmt.Sprintf("memory-slice-%d", slice) }

// engineCounters says which media engines can run out before the memory slices do. That is the one OFA everywhere, and
// the other engines only where an instance smaller than the GPU can take all decoders: a counter more than needed would
// block valid layouts wherever the reported engine numbers are off.
func engineCounters(g gpu.GPU) map[string]func(gpu.Profile) int {
	counters := map[string]func(gpu.Profile) int{"ofa": func(p gpu.Profile) int { return p.OFA }}
	full := fullProfile(g)
	takesAll := func(p gpu.Profile) bool {
		return p.MemorySlices < full.MemorySlices && full.Decoders > 0 && p.Decoders >= full.Decoders
	}
	if slices.ContainsFunc(g.Profiles, takesAll) {
		counters["decoders"] = func(p gpu.Profile) int { return p.Decoders }
		counters["encoders"] = func(p gpu.Profile) int { return p.Encoders }
		counters["jpeg"] = func(p gpu.Profile) int { return p.JPEG }
	}
	return counters
}

// fullProfile is the largest profile: the whole GPU.
func fullProfile(g gpu.GPU) gpu.Profile {
	if len(g.Profiles) == 0 {
		return gpu.Profile{}
	}
	return slices.MaxFunc(g.Profiles, compareSize)
}

// bySize orders profiles from small to large; of equal ones the plain name comes before those with a suffix.
func bySize(profiles []gpu.Profile) []gpu.Profile {
	return slices.SortedStableFunc(slices.Values(profiles), func(a, b gpu.Profile) int {
		return cmp.Or(compareSize(a, b), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
}

func compareSize(a, b gpu.Profile) int {
	return cmp.Or(cmp.Compare(a.MemorySlices, b.MemorySlices), cmp.Compare(a.ComputeSlices, b.ComputeSlices))
}

// StartOrder is the order in which to offer a profile's starts so that a first-fit allocator keeps the larger profiles
// placeable longest: at each step the start that destroys the fewest placements of larger profiles, the lowest of equal
// ones. On the layout of seven compute slices it gives 6,4,5,0,1,2,3 for 1g.
func StartOrder(g gpu.GPU, profile gpu.Profile) []int {
	alive := largerPlacements(g, profile)
	remaining := slices.Sorted(slices.Values(profile.Starts))
	order := make([]int, 0, len(remaining))
	for len(remaining) > 0 {
		best := slices.MinFunc(remaining, func(a, b int) int {
			return cmp.Or(cmp.Compare(destroyed(alive, a, profile), destroyed(alive, b, profile)), cmp.Compare(a, b))
		})
		order = append(order, best)
		remaining = slices.DeleteFunc(remaining, func(s int) bool { return s == best })
		alive = slices.DeleteFunc(alive, func(s span) bool { return s.overlaps(best, profile.MemorySlices) })
	}
	return order
}

// span is a run of memory slices.
type span struct{ start, size int }

func (s span) overlaps(start, size int) bool { return start < s.start+s.size && s.start < start+size }

// largerPlacements are the distinct placements of profiles larger than the given one. The whole GPU does not count:
// any instance at all destroys it.
func largerPlacements(g gpu.GPU, profile gpu.Profile) []span {
	type shape struct{ compute, start, size int }
	seen := map[shape]bool{}
	var larger []span
	for _, p := range bySize(g.Profiles) {
		if compareSize(p, profile) <= 0 || p.MemorySlices >= g.MemorySlices {
			continue
		}
		for _, start := range p.Starts {
			s := shape{p.ComputeSlices, start, p.MemorySlices}
			if !seen[s] {
				seen[s] = true
				larger = append(larger, span{start, p.MemorySlices})
			}
		}
	}
	return larger
}

func destroyed(alive []span, start int, profile gpu.Profile) int {
	n := 0
	for _, s := range alive {
		if s.overlaps(start, profile.MemorySlices) {
			n++
		}
	}
	return n
}
