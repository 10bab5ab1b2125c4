// SPDX-License-Identifier: Apache-2.0

// Package devices turns the facts about a GPU and the decision for it into the devices that kube-scheduler chooses
// from. First fit is the scheduler's whole placement policy, so the order of the devices is Sluice's packing policy.
package devices

import (
	"cmp"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/shares"
)

const (
	// TaintKey is the key of the NoSchedule taint on devices that take no new tenants; its value is the reason.
	TaintKey = v1alpha1.DriverName + "/draining"

	// HealthTaintKey is the key of the taint on devices of a GPU that is not well; its value is the reason.
	HealthTaintKey = v1alpha1.DriverName + "/unhealthy"

	// pcieRoot is the standard attribute that topology constraints compare.
	pcieRoot resourceapi.QualifiedName = "resource.kubernetes.io/pcieRoot"

	// attributeLength is the API server's bound on a string attribute.
	attributeLength = 64

	mebibyte = 1 << 20
	wholeGPU = 100 // compute of one GPU, percent
)

// Offer is one GPU as it is to be published.
type Offer struct {
	// GPU is what the hardware is.
	GPU gpu.GPU
	// Minor is the number in device names. It stays with the UUID while a claim refers to it, so it can differ from
	// GPU.Minor after a reboot.
	Minor int
	// Decision is the form to publish.
	Decision v1alpha1.GPUDecision
	// DriverVersion is NVIDIA's driver's.
	DriverVersion string
	// Instances are the MIG instances to publish, where the decision is static.
	Instances []Standing
	// Health says what is wrong with the GPU; the zero Health where nothing is.
	Health Health
	// MemoryLimits is what holds the memory limits of shares; "" where nobody has looked: then the library does.
	MemoryLimits v1alpha1.MemoryLimits
}

// Health is that of a GPU. All of its MIG instances share it.
type Health struct {
	// State is Suspect or Lost, "" where the GPU is well; Reason is one of the API's.
	State  v1alpha1.HealthState
	Reason string
}

// Build returns the devices of one GPU in the order to publish them, and the counter set that they consume; the set is
// nil where nothing is divided.
func Build(o Offer) ([]resourceapi.Device, *resourceapi.CounterSet) {
	var list []resourceapi.Device
	var set *resourceapi.CounterSet
	switch {
	case Static(o.Decision):
		list = standing(o)
	case o.Decision.Partitioning == v1alpha1.PartitioningMIG:
		list, set = placements(o)
	default:
		list = []resourceapi.Device{whole(o)}
	}
	o.Health.taint(list)
	return list, set
}

// taint keeps new tenants off a GPU that is not well. Only from lost hardware are those that it has driven away too: the
// effect deletes their pods.
func (h Health) taint(list []resourceapi.Device) {
	if h.State == "" {
		return
	}
	taint := resourceapi.DeviceTaint{Key: HealthTaintKey, Value: h.Reason, Effect: resourceapi.DeviceTaintEffectNoSchedule}
	if h.State == v1alpha1.HealthLost {
		taint.Effect = resourceapi.DeviceTaintEffectNoExecute
	}
	for i := range list {
		list[i].Taints = append(list[i].Taints, taint)
		list[i].Attributes[v1alpha1.AttributeDraining] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
	}
}

// whole is the GPU as one device, shared or not.
func whole(o Offer) resourceapi.Device {
	d := resourceapi.Device{
		Name:       Name(o.Minor),
		Attributes: attributes(o, "", o.GPU.UUID),
		Taints:     taints(o.Decision.Taint),
	}
	if o.Decision.Sharing == v1alpha1.SharingExclusive {
		d.Capacity = fixedCapacity(o.GPU.MemoryBytes, wholeGPU)
		return d
	}
	d.AllowMultipleAllocations = ptr.To(true)
	d.Capacity = sharedCapacity(o.Decision, o.GPU.MemoryBytes, wholeGPU)
	return d
}

// sharedCapacity is what shares of a GPU, or of a MIG instance, take their amounts from. Compute is percent of one whole
// GPU in either case.
func sharedCapacity(
	d v1alpha1.GPUDecision, memoryBytes int64, compute int,
) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		v1alpha1.CapacityMemory:  sharedMemory(d, memoryBytes),
		v1alpha1.CapacityCompute: sharedCompute(d, int64(compute)),
		v1alpha1.CapacitySlots:   slots(d),
	}
}

// leastShare is what a claim that asks for less is given all the same. Admission refuses such an amount in a pod's limits; in
// a claim that a tenant wrote it would be a share in which no process can start.
func leastShare(mode v1alpha1.SharingMode) int64 {
	if shares.Held(mode) {
		return shares.MinMemoryBytes
	}
	return mebibyte
}

// sharedMemory publishes physical × ratio, and bounds one claim by the physical memory.
func sharedMemory(d v1alpha1.GPUDecision, memoryBytes int64) resourceapi.DeviceCapacity {
	physical := memoryBytes / mebibyte * mebibyte
	published := PublishedMemory(memoryBytes, d.MemoryPercent)
	least := min(leastShare(d.Sharing), physical)
	share := physical
	if d := d.DefaultMemory; d != nil {
		share = min(max(d.Value()/mebibyte*mebibyte, least), physical)
	}
	return resourceapi.DeviceCapacity{
		Value: bytes(published),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: ptr.To(bytes(share)),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{
				Min: ptr.To(bytes(least)), Max: ptr.To(bytes(physical)), Step: ptr.To(bytes(mebibyte)),
			},
		},
	}
}

// sharedCompute publishes what the device has × ratio, and bounds one claim by what it has.
func sharedCompute(d v1alpha1.GPUDecision, physical int64) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{
		Value: count(PublishedCompute(physical, d.ComputePercent)),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: ptr.To(count(min(int64(ptr.Deref(d.DefaultCompute, 0)), physical))),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{
				Min: ptr.To(count(0)), Max: ptr.To(count(physical)), Step: ptr.To(count(1)),
			},
		},
	}
}

// slots bounds the number of shares without any word from the tenant: each consumes exactly one.
func slots(d v1alpha1.GPUDecision) resourceapi.DeviceCapacity {
	tenants := d.MaxTenants
	if tenants == 0 {
		tenants = v1alpha1.DefaultMaxTenants
	}
	return resourceapi.DeviceCapacity{
		Value: count(int64(tenants)),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: ptr.To(count(1)), ValidValues: []resource.Quantity{count(1)},
		},
	}
}

// PublishedMemory is physical × percent ÷ 100 in whole MiB, never below the physical MiB.
func PublishedMemory(physicalBytes int64, percent int32) int64 {
	mib := physicalBytes / mebibyte
	return max(mib, mib*int64(percent)/100) * mebibyte
}

// PublishedCompute is percent of one GPU × ratio ÷ 100, never below what is there.
func PublishedCompute(physical int64, percent int32) int64 {
	return max(physical, physical*int64(percent)/100)
}

func fixedCapacity(memory int64, compute int) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		v1alpha1.CapacityMemory:  {Value: bytes(memory / mebibyte * mebibyte)},
		v1alpha1.CapacityCompute: {Value: count(int64(compute))},
	}
}

// attributes gives every device every attribute: a device that lacked one would make a tenant's selector that reads it
// fail on every node.
func attributes(o Offer, profile, uuid string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	text := func(s string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{StringValue: ptr.To(s[:min(len(s), attributeLength)])}
	}
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		v1alpha1.AttributePool:          text(o.Decision.Pool),
		v1alpha1.AttributeSharing:       text(string(o.Decision.Sharing)),
		v1alpha1.AttributeProfile:       text(profile),
		v1alpha1.AttributeProduct:       text(o.GPU.Product),
		v1alpha1.AttributeArchitecture:  text(o.GPU.Architecture),
		v1alpha1.AttributeUUID:          text(uuid),
		v1alpha1.AttributeParentUUID:    text(o.GPU.UUID),
		v1alpha1.AttributeDriverVersion: text(o.DriverVersion),
		v1alpha1.AttributePCIBusID:      text(o.GPU.PCIBusID),
		v1alpha1.AttributeNUMANode:      {IntValue: ptr.To(int64(o.GPU.NUMANode))},
		v1alpha1.AttributeMemoryLimits:  text(string(cmp.Or(o.MemoryLimits, v1alpha1.MemoryLimitsInterceptor))),
		v1alpha1.AttributeDraining:      {BoolValue: ptr.To(o.Decision.Taint != "")},
		pcieRoot:                        text(o.GPU.PCIeRoot),
	}
}

func taints(reason v1alpha1.TaintReason) []resourceapi.DeviceTaint {
	if reason == "" {
		return nil
	}
	return []resourceapi.DeviceTaint{{
		Key: TaintKey, Value: string(reason), Effect: resourceapi.DeviceTaintEffectNoSchedule,
	}}
}

func bytes(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
