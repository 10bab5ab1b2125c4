// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// counterSetsPerSlice is the API server's bound.
const counterSetsPerSlice = 8

// Slices are the contents of the ResourceSlices that offer what the record says: counter sets first, in chunks, so that
// neither their places nor their contents depend on the order of the GPUs, then one slice a GPU, in order.
func Slices(record checkpoint.Published) []resourceslice.Slice {
	var sets []resourceapi.CounterSet
	var perGPU []resourceslice.Slice
	for _, g := range record.GPUs {
		offer := devices.Offer{
			GPU: g.Facts.GPU(), Minor: g.Minor, Decision: g.Form, DriverVersion: g.Facts.DriverVersion,
			Health:       devices.Health{State: g.Health, Reason: g.HealthReason},
			MemoryLimits: g.MemoryLimits,
		}
		for _, s := range g.Instances {
			offer.Instances = append(offer.Instances, s.Device())
		}
		list, set := devices.Build(offer)
		if len(list) == 0 {
			continue // its instances are still being made
		}
		perGPU = append(perGPU, resourceslice.Slice{Devices: list})
		if set != nil {
			sets = append(sets, *set)
		}
	}
	minor := func(s resourceapi.CounterSet) int { n, _ := devices.Minor(s.Name); return n }
	slices.SortFunc(sets, func(a, b resourceapi.CounterSet) int { return cmp.Compare(minor(a), minor(b)) })
	var all []resourceslice.Slice
	for chunk := range slices.Chunk(sets, counterSetsPerSlice) {
		all = append(all, resourceslice.Slice{SharedCounters: chunk})
	}
	return append(all, perGPU...)
}

// Settled is true where the API server holds exactly the wanted slices, in their order and in one generation.
func Settled(want []resourceslice.Slice, actual []resourceapi.ResourceSlice) bool {
	if len(actual) != len(want) {
		return false
	}
	// The name begins with the place in the order.
	actual = slices.SortedFunc(slices.Values(actual), func(a, b resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	for i, a := range actual {
		if a.Spec.Pool.Generation != actual[0].Spec.Pool.Generation ||
			a.Spec.Pool.ResourceSliceCount != int64(len(want)) ||
			!resourceslice.DevicesDeepEqual(a.Spec.Devices, want[i].Devices) ||
			!equality.Semantic.DeepEqual(a.Spec.SharedCounters, want[i].SharedCounters) {
			return false
		}
	}
	return true
}

// Published is what the slices of this driver in the API server say of each GPU, by UUID.
func Published(actual []resourceapi.ResourceSlice) map[string]v1alpha1.PublishedForm {
	forms := map[string]v1alpha1.PublishedForm{}
	for _, slice := range actual {
		for _, d := range slice.Spec.Devices {
			uuid, form := textOf(d, v1alpha1.AttributeParentUUID), formOf(d)
			// Single instances can be tainted on a GPU that is not.
			if other, several := forms[uuid]; several && (other.Taint == "" || form.Taint == "") {
				form.Taint = ""
			}
			forms[uuid] = form
		}
	}
	return forms
}

// formOf is the form of the GPU that a device belongs to.
func formOf(d resourceapi.Device) v1alpha1.PublishedForm {
	form := v1alpha1.PublishedForm{
		Pool: textOf(d, v1alpha1.AttributePool), Sharing: v1alpha1.SharingMode(textOf(d, v1alpha1.AttributeSharing)),
		Partitioning: v1alpha1.PartitioningNone, Taint: taintOf(d),
	}
	if textOf(d, v1alpha1.AttributeProfile) == "" {
		return form
	}
	form.Partitioning = v1alpha1.PartitioningMIG
	// Only placements of which not all can be had at once are counted.
	if len(d.ConsumesCounters) == 0 {
		form.Strategy = v1alpha1.MIGStatic
	}
	return form
}

func textOf(d resourceapi.Device, name resourceapi.QualifiedName) string {
	if v := d.Attributes[name].StringValue; v != nil {
		return *v
	}
	return ""
}

// taintOf is the manager's reason of the device's taint, or else what its health says. The agent's other reasons are told
// by the GPU's reason instead.
func taintOf(d resourceapi.Device) v1alpha1.TaintReason {
	known := []v1alpha1.TaintReason{
		v1alpha1.TaintPoolDeleted, v1alpha1.TaintPoolChanged, v1alpha1.TaintNotSelected, v1alpha1.TaintLayoutChanged,
		v1alpha1.TaintExcluded,
	}
	var health v1alpha1.TaintReason
	for _, t := range d.Taints {
		switch {
		case t.Key == devices.TaintKey && slices.Contains(known, v1alpha1.TaintReason(t.Value)):
			return v1alpha1.TaintReason(t.Value)
		case t.Key == devices.HealthTaintKey && t.Effect == resourceapi.DeviceTaintEffectNoExecute:
			health = v1alpha1.TaintLost
		case t.Key == devices.HealthTaintKey:
			health = v1alpha1.TaintUnhealthy
		}
	}
	return health
}
