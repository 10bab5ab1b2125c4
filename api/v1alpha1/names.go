// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Names that both binaries, tenants and tests share.
const (
	// DriverName is the DRA driver that publishes every device and prepares every claim of Sluice.
	DriverName = "gpu.sluice.dev"

	// PoolFinalizer keeps a deleted GPUPool until its tenants are gone and its classes are removed.
	PoolFinalizer = "sluice.dev/pool"
	// NodeFinalizer keeps a deleted GPUNode, and with it the decisions in force, until nothing is allocated on the node or
	// the Node is gone.
	NodeFinalizer = "sluice.dev/gpunode"

	// ManagedByLabel with the value ManagedByValue marks every object Sluice created and may delete.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of ManagedByLabel on objects of Sluice.
	ManagedByValue = "sluice"
)

// What a tenant writes in a container's resources.limits. Amounts are per GPU.
const (
	// ResourceGPU is the number of GPUs, an integer from 1 to 16; 1 where only an amount is given.
	ResourceGPU = "sluice.dev/gpu"
	// ResourceMemory is GPU memory of each GPU, a quantity in bytes, rounded up to a multiple of 1Mi.
	ResourceMemory = "sluice.dev/gpu-memory"
	// ResourceCompute is compute of each GPU in percent of a whole one, an integer from 1 to 100.
	ResourceCompute = "sluice.dev/gpu-compute"

	// PoolLabel on a pod names the GPUPool its GPUs come from.
	PoolLabel = "sluice.dev/pool"
	// RequestAnnotation on a pod holds the canonical request that admission made from the pod's limits.
	RequestAnnotation = "sluice.dev/request"
	// RequestLabel on a pod and on a ResourceClaimTemplate holds the hash of the canonical request.
	RequestLabel = "sluice.dev/request-hash"
)

// Attributes of every published device, in the domain DriverName. A value that does not apply is "" or 0:
// a device that lacked one would make a selector that reads it fail on every node.
const (
	// AttributePool is the name of the GPUPool that holds the device (string).
	AttributePool = "pool"
	// AttributeSharing is the sharing mode: Exclusive, TimeSlicing, Software or MPS (string).
	AttributeSharing = "sharing"
	// AttributeMemoryLimits is what holds shares to their memory: Driver or Interceptor (string).
	AttributeMemoryLimits = "memoryLimits"
	// AttributeProfile is the MIG profile, such as 1g.10gb; "" for a whole GPU (string).
	AttributeProfile = "profile"
	// AttributeProduct is the product name as NVML reports it (string).
	AttributeProduct = "product"
	// AttributeArchitecture is the GPU architecture, such as Hopper (string).
	AttributeArchitecture = "architecture"
	// AttributeUUID is the UUID of the GPU or of the MIG instance of a static layout; "" for a placement of strategy
	// Dynamic, which has none until it is created (string).
	AttributeUUID = "uuid"
	// AttributeParentUUID is the UUID of the physical GPU, for whole GPUs and MIG placements alike (string).
	AttributeParentUUID = "parentUUID"
	// AttributeDriverVersion is the NVIDIA driver's version (string: it is not a semantic version).
	AttributeDriverVersion = "driverVersion"
	// AttributePCIBusID is the PCI address, such as 0000:0a:00.0 (string).
	AttributePCIBusID = "pciBusID"
	// AttributeNUMANode is the NUMA node, -1 where unknown (int).
	AttributeNUMANode = "numaNode"
	// AttributeDraining is true where the device is tainted (bool). The classes of Sluice do not select such a device, so
	// that nobody gets past the taint by tolerating it.
	AttributeDraining = "draining"
)

// Capacities of published devices.
const (
	// CapacityMemory is GPU memory in bytes; on a shared GPU physical × memoryPercent ÷ 100.
	CapacityMemory = "memory"
	// CapacityCompute is percent of one whole GPU; on a shared GPU computePercent.
	CapacityCompute = "compute"
	// CapacitySlots is how many tenants a shared GPU takes; each share consumes one.
	CapacitySlots = "slots"
)
