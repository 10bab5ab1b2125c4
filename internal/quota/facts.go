// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// wholeGPU is the compute of one GPU in percent.
const wholeGPU = 100

// DeviceID names a published device as an allocation result does: the pool is that of the slices, a node's name.
type DeviceID struct{ Pool, Device string }

// Device is what is published of a device, as far as it costs.
type Device struct {
	// Pool is the GPUPool that holds the device.
	Pool string
	// Shared is true where several claims use the device.
	Shared bool
	// Profile is the MIG profile; "" for a whole GPU.
	Profile string
	// Memory is the published memory in bytes.
	Memory int64
	// Compute is the published compute in percent of one GPU.
	Compute int64
}

// Facts are what is known of devices.
type Facts map[DeviceID]Device

// FactsOf reads the devices of this driver out of slices, of each pool of slices those of its newest generation. Where
// no slice describes a device, as when a node's agent registers again, what GPUNodes say of its GPU stands in.
func FactsOf(slices []resourceapi.ResourceSlice, nodes []v1alpha1.GPUNode) Facts {
	facts := Facts{}
	for i := range nodes {
		facts.addNode(&nodes[i])
	}
	newest := map[string]int64{}
	for i := range slices {
		spec := &slices[i].Spec
		if spec.Driver == v1alpha1.DriverName {
			newest[spec.Pool.Name] = max(newest[spec.Pool.Name], spec.Pool.Generation)
		}
	}
	for i := range slices {
		spec := &slices[i].Spec
		if spec.Driver != v1alpha1.DriverName || spec.Pool.Generation < newest[spec.Pool.Name] {
			continue
		}
		for j := range spec.Devices {
			facts[DeviceID{spec.Pool.Name, spec.Devices[j].Name}] = describe(&spec.Devices[j])
		}
	}
	return facts
}

func describe(device *resourceapi.Device) Device {
	return Device{
		Pool:    text(device, v1alpha1.AttributePool),
		Shared:  ptr.Deref(device.AllowMultipleAllocations, false),
		Profile: text(device, v1alpha1.AttributeProfile),
		Memory:  capacity(device, v1alpha1.CapacityMemory),
		Compute: capacity(device, v1alpha1.CapacityCompute),
	}
}

func text(device *resourceapi.Device, attribute resourceapi.QualifiedName) string {
	return ptr.Deref(device.Attributes[attribute].StringValue, "")
}

func capacity(device *resourceapi.Device, name resourceapi.QualifiedName) int64 {
	return wholeOf(device.Capacity[name].Value)
}

// addNode adds the devices that the GPUs of a node are published as.
func (f Facts) addNode(node *v1alpha1.GPUNode) {
	for i := range node.Status.GPUs {
		reported := &node.Status.GPUs[i]
		form := reported.Published
		if reported.Minor == nil || form.Pool == "" {
			continue
		}
		minor := int(*reported.Minor)
		if form.Partitioning == v1alpha1.PartitioningMIG {
			f.addPlacements(node, reported, minor)
			continue
		}
		f[DeviceID{node.Name, devices.Name(minor)}] = Device{
			Pool: form.Pool, Shared: form.Sharing != v1alpha1.SharingExclusive,
			Memory: wholeMi(reported.MemoryBytes()), Compute: wholeGPU,
		}
	}
}

// addPlacements adds a MIG GPU under the beginnings of its devices' names: a GPUNode does not say where each instance of
// a profile may start, which costs the same everywhere.
func (f Facts) addPlacements(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, minor int) {
	for i := range node.Status.Profiles {
		profile := &node.Status.Profiles[i]
		if profile.Product != reported.Product {
			continue
		}
		placement := devices.PlacementName(minor, gpu.Placement{Profile: profile.Name})
		f[DeviceID{node.Name, anyStart(placement)}] = Device{
			Pool: reported.Published.Pool, Profile: profile.Name,
			Memory: wholeMi(profile.MemoryBytes()), Compute: int64(profile.Compute),
		}
	}
}

// anyStart is the name of a MIG device without its start: no published device is named so.
func anyStart(device string) string {
	end := strings.LastIndex(device, "-")
	return device[:end+1]
}

// find looks a device up, by its whole name first.
func (f Facts) find(id DeviceID) (Device, bool) {
	if device, found := f[id]; found {
		return device, true
	}
	device, found := f[DeviceID{id.Pool, anyStart(id.Device)}]
	return device, found
}

func wholeMi(bytes int64) int64 { return bytes / mebi * mebi }

func roundUpMi(bytes int64) int64 {
	if bytes > math.MaxInt64-mebi {
		return math.MaxInt64 / mebi * mebi
	}
	return (bytes + mebi - 1) / mebi * mebi
}

const mebi = 1 << 20
