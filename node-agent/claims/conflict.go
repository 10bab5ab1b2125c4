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
	// crowded are shared devices on which more would be granted than is published. That is either a smaller ratio than the
	// holders were granted under, which is fine, or a holder whose claim is gone while its pod still runs, which is not.
	crowded []crowd
}

// crowd is a shared device with more granted than published.
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
	for _, err := range []error{withinDevice(results, published), reachable(results)} {
		if err != nil {
			return verdict{refusal: err}
		}
	}
	return verdict{crowded: crowds(results, others, published)}
}

// withinDevice refuses a claim that alone was given more of a device than there is. The scheduler bounds each request by the
// device, but lets two requests of a claim share one, and an overcommitted device has room for both.
func withinDevice(results []checkpoint.Result, published *checkpoint.Published) error {
	for _, r := range sharedDevices(results) {
		room, offered := roomOf(r, published)
		if !offered {
			continue
		}
		sum := sharesOf(results, r)
		if sum.memory > room.memory || sum.compute > room.compute {
			return refuse("its requests were given %d MiB and %d %% of %s together, which has %d MiB and %d %%: ask for less, or "+
				"keep the requests on different GPUs with the constraint distinctAttribute: %s/%s", sum.memory>>20, sum.compute,
				r.Device, room.memory>>20, room.compute, v1alpha1.DriverName, v1alpha1.AttributeUUID)
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
		return a.Placement.Overlaps(*b.Placement) && (*a.Placement != *b.Placement || !a.Shared || !b.Shared)
	case a.Placement != nil || b.Placement != nil:
		return true
	default:
		return !a.Shared || !b.Shared
	}
}

// crowds finds the devices on which the shares granted and those asked for are together more than is published.
func crowds(results []checkpoint.Result, others []checkpoint.Claim, published *checkpoint.Published) []crowd {
	var found []crowd
	for _, r := range sharedDevices(results) {
		room, offered := roomOf(r, published)
		if !offered || room.form.Sharing == v1alpha1.SharingExclusive {
			continue
		}
		sum := sharesOf(results, r)
		var holders []checkpoint.Claim
		for _, other := range others {
			if held := sharesOf(other.Results, r); held.slots > 0 {
				sum = sum.plus(held)
				holders = append(holders, other)
			}
		}
		if len(holders) > 0 && sum.exceeds(room) {
			found = append(found, crowd{device: r.Device, holders: holders})
		}
	}
	return found
}

// room is what a shared device has, and the form under which it is published.
type room struct {
	memory, compute int64
	form            v1alpha1.GPUDecision
}

// roomOf is what the device of a result has; false where it is not offered.
func roomOf(r checkpoint.Result, published *checkpoint.Published) (room, bool) {
	offered := published.ByUUID(r.GPU)
	if offered == nil {
		return room{}, false
	}
	if r.Placement == nil {
		return room{offered.Facts.MemoryBytes, wholeGPU, offered.Form}, true
	}
	instance := offered.At(r.Placement.GPU())
	if instance == nil {
		return room{}, false
	}
	return room{instance.MemoryBytes, int64(instance.Compute), offered.Form}, true
}

// sharedDevices are the results that are shares, one of each device.
func sharedDevices(results []checkpoint.Result) []checkpoint.Result {
	var first []checkpoint.Result
	for _, r := range results {
		if r.Shared && !slices.ContainsFunc(first, func(o checkpoint.Result) bool { return sameDevice(o, r) }) {
			first = append(first, r)
		}
	}
	return first
}

// sameDevice is true where two results are of one GPU, or of one MIG instance of it.
func sameDevice(a, b checkpoint.Result) bool {
	switch {
	case a.GPU != b.GPU:
		return false
	case a.Placement == nil || b.Placement == nil:
		return a.Placement == b.Placement
	default:
		return *a.Placement == *b.Placement
	}
}

// granted is what shares of one device add up to.
type granted struct{ memory, compute, slots int64 }

func sharesOf(results []checkpoint.Result, of checkpoint.Result) granted {
	var g granted
	for _, r := range results {
		if r.Shared && sameDevice(r, of) {
			g = g.plus(granted{r.Memory, r.Compute, 1})
		}
	}
	return g
}

func (g granted) plus(o granted) granted {
	return granted{g.memory + o.memory, g.compute + o.compute, g.slots + o.slots}
}

func (g granted) exceeds(r room) bool {
	return g.memory > devices.PublishedMemory(r.memory, r.form.MemoryPercent) ||
		g.compute > devices.PublishedCompute(r.compute, r.form.ComputePercent) ||
		g.slots > int64(cmp.Or(r.form.MaxTenants, v1alpha1.DefaultMaxTenants))
}

func describe(c checkpoint.Claim) string {
	return fmt.Sprintf("claim %s/%s (%s)", c.Namespace, c.Name, c.UID)
}
