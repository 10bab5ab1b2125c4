// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// verdict is what stands against preparing a claim.
type verdict struct {
	// refusal is final for now: another claim has what this one was given.
	refusal error
	// crowded are shared GPUs on which more would be granted than is published. That is either a smaller ratio than the
	// holders were granted under, which is fine, or a holder whose claim is gone while its pod still runs, which is not.
	crowded []crowd
}

// crowd is a shared GPU with more granted than published.
type crowd struct {
	device  string
	holders []checkpoint.Claim
}

// judge holds a claim's results against those of every other claim of the node. The scheduler keeps them apart as long as
// claims live; a claim that was deleted by force frees its devices before its containers have stopped.
func judge(
	uid string, results []checkpoint.Result, recorded checkpoint.Claims, published *checkpoint.Published,
) verdict {
	others := slices.DeleteFunc(recorded.Sorted(), func(c checkpoint.Claim) bool { return c.UID == uid })
	for i, r := range results {
		if r.Admin {
			continue
		}
		for _, own := range results[:i] {
			if excludes(r, own) {
				return verdict{refusal: refuse("its results %s and %s cannot be had together", own.Device, r.Device)}
			}
		}
		for _, other := range others {
			for _, held := range other.Results {
				if excludes(r, held) {
					return verdict{refusal: refuse("%s is still held by %s, which has %s; it is tried again",
						r.Device, describe(other), held.Device)}
				}
			}
		}
	}
	if err := withinGPU(results, published); err != nil {
		return verdict{refusal: err}
	}
	return verdict{crowded: crowds(results, others, published)}
}

// withinGPU refuses a claim that alone was given more of a GPU than there is. The scheduler bounds each request by the GPU,
// but lets two requests of a claim share one, and an overcommitted GPU has room for both.
func withinGPU(results []checkpoint.Result, published *checkpoint.Published) error {
	for _, uuid := range (checkpoint.Claim{Results: results}).GPUs() {
		offered := published.ByUUID(uuid)
		if offered == nil {
			continue
		}
		sum := sharesOf(results, uuid)
		if sum.memory > offered.Facts.MemoryBytes || sum.compute > wholeGPU {
			return refuse("its requests were given %d MiB and %d %% of %s together, which has %d MiB and 100 %%: ask for less, or "+
				"keep the requests on different GPUs with the constraint distinctAttribute: %s/%s", sum.memory>>20, sum.compute,
				devices.Name(offered.Minor), offered.Facts.MemoryBytes>>20, v1alpha1.DriverName, v1alpha1.AttributeUUID)
		}
	}
	return nil
}

// excludes is true where two results of different claims, or of one, cannot both be had.
func excludes(a, b checkpoint.Result) bool {
	if a.GPU != b.GPU || a.Admin || b.Admin {
		return false
	}
	switch {
	case a.Placement != nil && b.Placement != nil:
		return a.Placement.Overlaps(*b.Placement)
	case a.Placement != nil || b.Placement != nil:
		return true
	default:
		return !a.Shared || !b.Shared
	}
}

// crowds finds the GPUs on which the shares granted and those asked for are together more than is published.
func crowds(results []checkpoint.Result, others []checkpoint.Claim, published *checkpoint.Published) []crowd {
	var found []crowd
	for _, uuid := range (checkpoint.Claim{Results: results}).GPUs() {
		offered := published.ByUUID(uuid)
		if offered == nil || offered.Form.Sharing == v1alpha1.SharingExclusive {
			continue
		}
		sum := sharesOf(results, uuid)
		var holders []checkpoint.Claim
		for _, other := range others {
			if held := sharesOf(other.Results, uuid); held.slots > 0 {
				sum = sum.plus(held)
				holders = append(holders, other)
			}
		}
		if len(holders) > 0 && sum.exceeds(offered) {
			found = append(found, crowd{device: devices.Name(offered.Minor), holders: holders})
		}
	}
	return found
}

// granted is what shares of one GPU add up to.
type granted struct{ memory, compute, slots int64 }

func sharesOf(results []checkpoint.Result, uuid string) granted {
	var g granted
	for _, r := range results {
		if r.GPU == uuid && r.Shared {
			g = g.plus(granted{r.Memory, r.Compute, 1})
		}
	}
	return g
}

func (g granted) plus(o granted) granted {
	return granted{g.memory + o.memory, g.compute + o.compute, g.slots + o.slots}
}

func (g granted) exceeds(offered *checkpoint.PublishedGPU) bool {
	form := offered.Form
	return g.memory > devices.PublishedMemory(offered.Facts.MemoryBytes, form.MemoryPercent) ||
		g.compute > int64(form.ComputePercent) ||
		g.slots > int64(cmp.Or(form.MaxTenants, v1alpha1.DefaultMaxTenants))
}

func describe(c checkpoint.Claim) string {
	return fmt.Sprintf("claim %s/%s (%s)", c.Namespace, c.Name, c.UID)
}
