// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// Standing is a MIG instance of a static layout, which is there whether a claim has it or not.
type Standing struct {
	gpu.Placement
	// UUID is the MIG device's.
	UUID string
	// MemoryBytes and Compute, in percent of the whole GPU, are what the instance has.
	MemoryBytes int64
	Compute     int
	// Taint says why it takes no new tenants; "" where it takes them.
	Taint v1alpha1.TaintReason
}

// Static is true where a decision lists the MIG instances that a GPU is to have.
func Static(d v1alpha1.GPUDecision) bool {
	return d.Partitioning == v1alpha1.PartitioningMIG && d.Strategy == v1alpha1.MIGStatic
}

// standing offers the instances that are there, smaller ones first. Nothing that is there overlaps, so there is nothing to
// count.
func standing(o Offer) []resourceapi.Device {
	list := slices.SortedFunc(slices.Values(o.Instances), func(a, b Standing) int {
		return cmp.Or(cmp.Compare(a.MemoryBytes, b.MemoryBytes), cmp.Compare(a.Compute, b.Compute),
			cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Start, b.Start))
	})
	devices := make([]resourceapi.Device, 0, len(list))
	for _, s := range list {
		devices = append(devices, standingDevice(o, s))
	}
	return devices
}

func standingDevice(o Offer, s Standing) resourceapi.Device {
	o.Decision.Taint = cmp.Or(o.Decision.Taint, s.Taint)
	d := resourceapi.Device{
		Name:       PlacementName(o.Minor, s.Placement),
		Attributes: attributes(o, s.Profile, s.UUID),
		Taints:     taints(o.Decision.Taint),
	}
	if o.Decision.Sharing == v1alpha1.SharingExclusive {
		d.Capacity = fixedCapacity(s.MemoryBytes, s.Compute)
		return d
	}
	d.AllowMultipleAllocations = ptr.To(true)
	d.Capacity = sharedCapacity(o.Decision, s.MemoryBytes, s.Compute)
	return d
}

// Wanted are the MIG instances that a static decision lists.
func Wanted(d v1alpha1.GPUDecision) []gpu.Placement {
	wanted := make([]gpu.Placement, 0, len(d.Instances))
	for _, p := range d.Instances {
		wanted = append(wanted, gpu.Placement{Profile: p.Profile, Start: int(ptr.Deref(p.Start, 0))})
	}
	return wanted
}
