// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// Record is what the outcomes say is to be offered, in the order of what is offered now; what is new comes last.
func Record(outcomes []Outcome, now checkpoint.Published) checkpoint.Published {
	var record checkpoint.Published
	for _, o := range outcomes {
		if o.Form != nil {
			published := checkpoint.PublishedGPU{
				Minor: o.Minor, Form: *o.Form, Facts: o.Facts, Instances: o.Instances, MemoryLimits: o.Limits.HeldBy,
			}
			if before := now.ByUUID(o.Facts.UUID); before != nil && published.MemoryLimits == "" {
				published.MemoryLimits = before.MemoryLimits // nobody knows better now
			}
			if o.Health.Sick() {
				published.Health, published.HealthReason = o.Health.State, o.Health.Reason
			}
			record.GPUs = append(record.GPUs, published)
		}
	}
	place := places(now)
	slices.SortStableFunc(record.GPUs, func(a, b checkpoint.PublishedGPU) int {
		return cmp.Or(cmp.Compare(placeOf(place, a, now), placeOf(place, b, now)), cmp.Compare(a.Minor, b.Minor))
	})
	return record
}

// Packed is the record in the order that makes the scheduler, which takes the first device that fits, fill GPUs that have
// tenants before it breaks into untouched ones, pool by pool; GPUs that are given away whole come last. GPUs that are
// alike stay in the order they have, since every change of order rewrites every slice.
func Packed(record checkpoint.Published, inUse map[string]int) checkpoint.Published {
	place := places(record)
	gpus := slices.SortedStableFunc(slices.Values(record.GPUs), func(a, b checkpoint.PublishedGPU) int {
		return cmp.Or(
			compareBool(givenWhole(a), givenWhole(b)),
			cmp.Compare(a.Form.Pool, b.Form.Pool),
			compareBool(givenWhole(a) || inUse[a.Facts.UUID] == 0, givenWhole(b) || inUse[b.Facts.UUID] == 0),
			cmp.Compare(place[a.Facts.UUID], place[b.Facts.UUID]),
		)
	})
	return checkpoint.Published{Version: record.Version, GPUs: gpus}
}

// SameGPUs is true where both records offer the same GPUs, in whatever order.
func SameGPUs(a, b checkpoint.Published) bool { return slices.Equal(sortedUUIDs(a), sortedUUIDs(b)) }

// SameOrder is true where both records offer the same GPUs in the same order.
func SameOrder(a, b checkpoint.Published) bool { return slices.Equal(uuids(a), uuids(b)) }

func givenWhole(g checkpoint.PublishedGPU) bool {
	return g.Form.Partitioning != v1alpha1.PartitioningMIG && g.Form.Sharing == v1alpha1.SharingExclusive
}

func places(p checkpoint.Published) map[string]int {
	place := map[string]int{}
	for i, g := range p.GPUs {
		place[g.Facts.UUID] = i
	}
	return place
}

func placeOf(place map[string]int, g checkpoint.PublishedGPU, now checkpoint.Published) int {
	if i, ok := place[g.Facts.UUID]; ok {
		return i
	}
	return len(now.GPUs)
}

func uuids(p checkpoint.Published) []string {
	list := make([]string, 0, len(p.GPUs))
	for _, g := range p.GPUs {
		list = append(list, g.Facts.UUID)
	}
	return list
}

func sortedUUIDs(p checkpoint.Published) []string {
	list := uuids(p)
	slices.Sort(list)
	return list
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
