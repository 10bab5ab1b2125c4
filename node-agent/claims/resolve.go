// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// ErrRefused says that the node must not prepare a claim as it was allocated. Asking again helps only after something
// else has changed, which the message names.
var ErrRefused = errors.New("the claim cannot be prepared on this node")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// resolve turns the claim's results of this driver into what is to be prepared. A device name is looked up in the record
// of what was published, never in what NVML numbers the GPUs today.
func resolve(claim *resourceapi.ResourceClaim, nodeName string, published *checkpoint.Published) ([]checkpoint.Result, error) {
	if claim.Status.Allocation == nil {
		return nil, refuse("it is not allocated")
	}
	var results []checkpoint.Result
	for i, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != v1alpha1.DriverName {
			continue
		}
		if r.Pool != nodeName {
			return nil, refuse("device %s belongs to node %s, this is node %s", r.Device, r.Pool, nodeName)
		}
		result, err := resolveOne(&r, published)
		if err != nil {
			return nil, err
		}
		if err := configured(claim.Status.Allocation.Devices.Config, r.Request); err != nil {
			return nil, err
		}
		result.Index = i
		results = append(results, result)
	}
	return results, nil
}

// configured refuses parameters for a device, of which there are none: who writes some would believe that they count.
func configured(config []resourceapi.DeviceAllocationConfiguration, request string) error {
	main, _, _ := strings.Cut(request, "/")
	for _, c := range config {
		of := len(c.Requests) == 0 || slices.Contains(c.Requests, request) || slices.Contains(c.Requests, main)
		if of && c.Opaque != nil && c.Opaque.Driver == v1alpha1.DriverName {
			where := "claim"
			if c.Source == resourceapi.AllocationConfigSourceClass {
				where = "device class"
			}
			return refuse("the %s has opaque parameters for %s, which takes none: how devices are shared is said in the GPUPool",
				where, v1alpha1.DriverName)
		}
	}
	return nil
}

func resolveOne(r *resourceapi.DeviceRequestAllocationResult, published *checkpoint.Published) (checkpoint.Result, error) {
	result := checkpoint.Result{
		Request: r.Request, Pool: r.Pool, Device: r.Device,
		ShareID: string(ptr.Deref(r.ShareID, "")), Admin: ptr.Deref(r.AdminAccess, false),
	}
	minor, ok := devices.Minor(r.Device)
	if !ok {
		return result, refuse("device %s is not one of this driver's", r.Device)
	}
	offered := published.ByMinor(minor)
	if offered == nil {
		return result, refuse("device %s is not published by this node", r.Device)
	}
	result.GPU = offered.Facts.UUID
	result.Capped = capped(offered)
	switch {
	case devices.Static(offered.Form):
		result.Driver = driverOf(offered)
		return standing(result, r, offered)
	case offered.Form.Partitioning == v1alpha1.PartitioningMIG:
		return placed(result, offered)
	}
	if r.Device != devices.Name(minor) {
		return result, refuse("device %s is a MIG instance, but GPU %s is published whole now", r.Device, result.GPU)
	}
	result.Driver = driverOf(offered)
	return whole(result, r, offered)
}

// driverOf is the driver's version where the result is to remember it: MPS depends on it.
func driverOf(offered *checkpoint.PublishedGPU) string {
	if offered.Form.Sharing != v1alpha1.SharingMPS {
		return ""
	}
	return offered.Facts.DriverVersion
}

// placed is a MIG instance: its amounts are the profile's.
func placed(result checkpoint.Result, offered *checkpoint.PublishedGPU) (checkpoint.Result, error) {
	facts := offered.Facts.GPU()
	profile, placement, ok := devices.FindPlacement(facts, offered.Minor, result.Device)
	if !ok {
		return result, refuse("device %s is no MIG placement of GPU %s, which is divided by MIG now", result.Device, result.GPU)
	}
	result.Placement = &checkpoint.Placement{Profile: placement.Profile, Start: placement.Start, Size: profile.MemorySlices}
	result.Memory = profile.MemoryBytes
	result.Compute = int64(profile.Compute(facts.ComputeSlices))
	return result, nil
}

// whole is a GPU as one device, given to one claim or in shares.
func whole(
	result checkpoint.Result, r *resourceapi.DeviceRequestAllocationResult, offered *checkpoint.PublishedGPU,
) (checkpoint.Result, error) {
	return amounts(result, r, offered.Form.Sharing, offered.Facts.MemoryBytes, wholeGPU)
}

// amounts are what was granted of a device: all of it, or what the share carries.
func amounts(
	result checkpoint.Result, r *resourceapi.DeviceRequestAllocationResult, mode v1alpha1.SharingMode, deviceMemory, deviceCompute int64,
) (checkpoint.Result, error) {
	result.Memory, result.Compute = deviceMemory, deviceCompute
	shared := mode != v1alpha1.SharingExclusive
	if result.Admin {
		return result, nil
	}
	if shared != (result.ShareID != "") {
		return result, refuse("device %s was allocated %s, but is published %s now",
			r.Device, sharedWord(result.ShareID != ""), sharedWord(shared))
	}
	if !shared {
		return result, nil
	}
	memory, hasMemory := r.ConsumedCapacity[v1alpha1.CapacityMemory]
	compute, hasCompute := r.ConsumedCapacity[v1alpha1.CapacityCompute]
	if !hasMemory || !hasCompute {
		return result, refuse("share %s of device %s carries no amount of memory and compute", result.ShareID, r.Device)
	}
	result.Shared = true
	result.Memory, result.Compute = memory.Value(), compute.Value()
	result.MPS = mode == v1alpha1.SharingMPS
	result.Enforced = shares.Held(mode)
	return result, nil
}

func sharedWord(shared bool) string {
	if shared {
		return "in shares"
	}
	return "as a whole"
}

const wholeGPU = 100 // compute of one GPU, percent
