// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a GPUNode. All are always set by the node's agent.
const (
	// NodeReady is True when every GPU that a pool holds on this node is published as decided.
	NodeReady = "Ready"
	// NodeDriverAvailable is True when NVML answers; False says what was tried and what went wrong.
	NodeDriverAvailable = "DriverAvailable"
	// NodeForeignDriver is True when another DRA driver or a device plugin hands out GPUs of this node. Sluice then
	// publishes nothing on it that is not in use already; the message names who.
	NodeForeignDriver = "ForeignDriver"
	// NodeMIGModeOff is True when GPUs of a MIG pool cannot be divided because MIG mode is off and only an operator can
	// turn it on (Ampere needs a GPU reset); the message names the GPUs and the command.
	NodeMIGModeOff = "MIGModeOff"
	// NodeEnforcing is True when new shares of pools with Software sharing come with the library that holds their memory
	// inside the processes. What was prepared before keeps what it was given.
	NodeEnforcing = "Enforcing"
)

// Reasons of GPUNode conditions, and of a GPU that is not published.
const (
	// ReasonPublished: the GPU, or every GPU, is published as decided.
	ReasonPublished = "Published"
	// ReasonNoPool: no pool holds any GPU of the node; there is nothing to publish.
	ReasonNoPool = "NoPool"
	// ReasonLeft: the agent was asked to leave, and nothing of Sluice is on the node any more but the agent itself.
	ReasonLeft = "Left"
	// ReasonPublishing: the ResourceSlices are being written, or writing them failed and is tried again.
	ReasonPublishing = "Publishing"
	// ReasonInUse: the GPU keeps its old form, tainted, because a claim prepared on it has not been released.
	ReasonInUse = "InUse"
	// ReasonForeignDriver: another driver hands out this node's GPUs.
	ReasonForeignDriver = "ForeignDriver"
	// ReasonNoForeignDriver: no other driver hands out this node's GPUs.
	ReasonNoForeignDriver = "NoForeignDriver"
	// ReasonNVMLAvailable: NVML answers.
	ReasonNVMLAvailable = "NVMLAvailable"
	// ReasonNVMLNotFound: libnvidia-ml.so.1 could not be loaded.
	ReasonNVMLNotFound = "NVMLNotFound"
	// ReasonNVMLFailed: NVML was loaded but a call failed.
	ReasonNVMLFailed = "NVMLFailed"
	// ReasonMIGModeOff: MIG mode is off and turning it on needs an operator.
	ReasonMIGModeOff = "MIGModeOff"
	// ReasonMIGModeOn: MIG mode is on, so a pool of whole GPUs cannot use the GPU.
	ReasonMIGModeOn = "MIGModeOn"
	// ReasonMIGModeAsNeeded: no GPU of the node waits for MIG mode.
	ReasonMIGModeAsNeeded = "MIGModeAsNeeded"
	// ReasonMIGNotSupported: the board or the driver has no MIG, but the pool divides with MIG.
	ReasonMIGNotSupported = "MIGNotSupported"
	// ReasonLibraryPlaced: the library is on the node, and containers with a share start with it.
	ReasonLibraryPlaced = "LibraryPlaced"
	// ReasonNoLibrary: the agent was started without the library; shares are counted, but nothing holds tenants to them.
	ReasonNoLibrary = "NoLibrary"
	// ReasonLibraryFailed: the library cannot be read or placed, and until it is no share is prepared that needs it.
	ReasonLibraryFailed = "LibraryFailed"
	// ReasonGPUMissing: a pool was given the GPU, but NVML does not see it any more.
	ReasonGPUMissing = "GPUMissing"
	// ReasonLayoutUndecided: the pool's strategy is Static, but the manager has decided no instances for the GPU.
	ReasonLayoutUndecided = "LayoutUndecided"
	// ReasonDividing: the instances of the GPU are being made as decided.
	ReasonDividing = "Dividing"
	// ReasonDivideFailed: an instance could not be destroyed or made; the message says why, and it is tried again.
	ReasonDivideFailed = "DivideFailed"
	// ReasonForeignInstances: somebody else made or destroyed MIG instances on the GPU, and what is there is in use; it is
	// repaired when it is not.
	ReasonForeignInstances = "ForeignInstances"
	// ReasonUnhealthy: the GPU is suspect or lost; its health says why.
	ReasonUnhealthy = "Unhealthy"
)

// TaintReason says why a GPU takes no new tenants.
// +kubebuilder:validation:Enum=PoolDeleted;PoolChanged;NotSelected;LayoutChanged;Excluded;Unhealthy;Lost
type TaintReason string

const (
	// TaintPoolDeleted: the pool that holds the GPU is being deleted.
	TaintPoolDeleted TaintReason = "PoolDeleted"
	// TaintPoolChanged: the pool wants the GPU in another form (partitioning or sharing mode).
	TaintPoolChanged TaintReason = "PoolChanged"
	// TaintNotSelected: the pool does not select the GPU any more, or another pool has it next.
	TaintNotSelected TaintReason = "NotSelected"
	// TaintLayoutChanged: the pool wants other MIG instances on the GPU. Those that stay are used on.
	TaintLayoutChanged TaintReason = "LayoutChanged"
	// TaintExcluded: the pool names the GPU in spec.excluded.
	TaintExcluded TaintReason = "Excluded"
	// TaintUnhealthy: the GPU is suspect. Set by the agent, never decided by the manager.
	TaintUnhealthy TaintReason = "Unhealthy"
	// TaintLost: the hardware does not answer any more. Set by the agent, never decided by the manager.
	TaintLost TaintReason = "Lost"
)

// GPUNode is one node's GPUs: in spec what the manager decided for each, in status what is really there.
// It is created by the node's agent, named like the Node and deleted with it; nobody needs to write one. One that is
// deleted while the Node is there stays until nothing is allocated on the node; then the agent makes a new one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gnode,categories=sluice
// +kubebuilder:printcolumn:name="Products",type=string,JSONPath=`.status.products`
// +kubebuilder:printcolumn:name="Published",type=string,JSONPath=`.status.summary`,description="GPUs published / GPUs of the node"
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.status.driverVersion`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GPUNode struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata; the name is the Node's name.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the decision for each GPU, written only by the manager.
	// +optional
	Spec *GPUNodeSpec `json:"spec,omitempty"`

	// status is what is really there, written only by the node's agent.
	// +optional
	Status GPUNodeStatus `json:"status,omitempty,omitzero"`
}

// GPUNodeSpec is the decision for each GPU of a node.
type GPUNodeSpec struct {
	// gpus are the GPUs that a pool holds, by UUID. A GPU that is not listed is not published. Up to 64.
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=64
	GPUs []GPUDecision `json:"gpus,omitempty"`

	// leave asks the agent to remove all that it keeps on the node, once no pool holds a GPU of it and no claim is prepared
	// there: Sluice is being uninstalled. Set by `manager uninstall`. Unset: the node stays.
	// +optional
	Leave *bool `json:"leave,omitempty"`
}

// GPUDecision says what one GPU is to be. Written by the manager.
type GPUDecision struct {
	// uuid is the GPU's UUID as NVML gives it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UUID string `json:"uuid,omitempty"`

	// pool is the GPUPool that holds the GPU.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	Pool string `json:"pool,omitempty"`

	// partitioning is None (whole) or MIG (divided as strategy says).
	// +required
	Partitioning PartitioningType `json:"partitioning,omitempty"`

	// strategy is Dynamic (every placement is offered, instances come and go with claims) or Static (what instances lists
	// is kept and offered). With partitioning MIG only; unset there: Dynamic.
	// +optional
	Strategy MIGStrategy `json:"strategy,omitempty"`

	// instances are the MIG instances wanted on the GPU, by start. Up to 16. Strategy Static only; unset there: no
	// layout could be decided, nothing is published and nothing on the GPU is touched.
	// +optional
	// +listType=map
	// +listMapKey=start
	// +kubebuilder:validation:MaxItems=16
	Instances []MIGPlacement `json:"instances,omitempty"`

	// keepIdleSeconds is how long an instance that nobody uses any more is kept, 1 to 3600. Unset: not at all. Strategy
	// Dynamic only.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	KeepIdleSeconds int32 `json:"keepIdleSeconds,omitempty"`

	// sharing is the mode in force.
	// +required
	Sharing SharingMode `json:"sharing,omitempty"`

	// memoryPercent is what is published in percent of the physical memory, 100 to 1000.
	// +required
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	MemoryPercent int32 `json:"memoryPercent,omitempty"`

	// computePercent is what is published in percent of the physical compute, 100 to 1000.
	// +required
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	ComputePercent int32 `json:"computePercent,omitempty"`

	// maxTenants is how many shares the GPU gives, 1 to 128. Shared modes only.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	MaxTenants int32 `json:"maxTenants,omitempty"`

	// defaultMemory is the memory of a share whose claim names none, at least 1Mi in whole Mi. Unset: the whole GPU's.
	// +optional
	DefaultMemory *resource.Quantity `json:"defaultMemory,omitempty"`

	// defaultCompute is the compute of a share whose claim names none, 0 to 100 percent of one GPU. Unset: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	DefaultCompute *int32 `json:"defaultCompute,omitempty"`

	// compute says whether a share may have more compute than it asked for: Share where nobody else wants it, or Cap.
	// Unset: Share. Mode Software only.
	// +optional
	Compute ComputePolicy `json:"compute,omitempty"`

	// memoryLimits says what holds a share to its memory. Unset: Auto. Mode Software only.
	// +optional
	MemoryLimits MemoryLimits `json:"memoryLimits,omitempty"`

	// onViolation says what happens to a share that holds more memory than it may. Unset: Report. Mode Software only.
	// +optional
	OnViolation ViolationAction `json:"onViolation,omitempty"`

	// timeSlice is what NVIDIA's driver is told about turns on the GPU. Unset: Default. Mode TimeSlicing only.
	// +optional
	TimeSlice TimeSlice `json:"timeSlice,omitempty"`

	// taint asks the agent to publish the GPU's devices with a NoSchedule taint, and says why. What runs on the GPU goes
	// on. Unset: no taint.
	// +optional
	Taint TaintReason `json:"taint,omitempty"`

	// taintedSince is when the taint was decided: grace periods begin then. Unset: there is no taint.
	// +optional
	TaintedSince *metav1.Time `json:"taintedSince,omitempty"`
}

// GPUNodeStatus is what is really there. Written by the node's agent.
// +kubebuilder:validation:MinProperties=1
type GPUNodeStatus struct {
	// conditions are Ready, DriverAvailable, ForeignDriver, MIGModeOff, Enforcing, MPSServing, LimitsViolated and
	// MemoryUnverified; their meaning and reasons are
	// documented with the constants of the API package.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of spec that the agent has applied and published.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// driverVersion is the version of NVIDIA's driver, such as 580.159.04.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	DriverVersion string `json:"driverVersion,omitempty"`

	// products is one line for people: how many GPUs of which product.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Products string `json:"products,omitempty"`

	// summary is one line for people: GPUs published / GPUs of the node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Summary string `json:"summary,omitempty"`

	// gpus are the node's GPUs as NVML shows them, by UUID. Up to 64.
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=64
	GPUs []GPUStatus `json:"gpus,omitempty"`

	// profiles are the MIG profiles that the node's boards offer, by product and name. Up to 256.
	// +optional
	// +listType=map
	// +listMapKey=product
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Profiles []MIGProfile `json:"profiles,omitempty"`

	// violations are the shares that hold more memory than they may, or that a process uses which the library does not
	// know, the longest first. Up to 64; what does not fit is counted in condition LimitsViolated.
	// +optional
	// +listType=map
	// +listMapKey=claimUID
	// +listMapKey=result
	// +kubebuilder:validation:MaxItems=64
	Violations []Violation `json:"violations,omitempty"`
}

// GPUStatus is one GPU as NVML shows it and as it is published.
type GPUStatus struct {
	// uuid is the GPU's UUID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UUID string `json:"uuid,omitempty"`

	// minor is the number in the device's name, gpu-<minor>, 0 to 255. It is NVML's minor number, except that it stays
	// with its UUID while a claim refers to it.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Minor *int32 `json:"minor,omitempty"`

	// product is the product name as NVML gives it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=96
	Product string `json:"product,omitempty"`

	// architecture is the GPU architecture, such as Hopper.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Architecture string `json:"architecture,omitempty"`

	// memory is what CUDA can use: NVML's total less what the driver reserves.
	// +required
	Memory *resource.Quantity `json:"memory,omitempty"`

	// migMode is Enabled, Disabled or Unsupported.
	// +optional
	MIGMode MIGModeState `json:"migMode,omitempty"`

	// instances are the MIG instances that exist, by start. Up to 16.
	// +optional
	// +listType=map
	// +listMapKey=start
	// +kubebuilder:validation:MaxItems=16
	Instances []MIGInstance `json:"instances,omitempty"`

	// tenants is how many claims are prepared on the GPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Tenants *int32 `json:"tenants,omitempty"`

	// heldBy names who uses the GPU, as far as the agent can see: pods as namespace/name, processes that belong to no
	// claim as name (pid). Up to 8 names of up to 320 characters; the last one counts the others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=320
	HeldBy []string `json:"heldBy,omitempty"`

	// memoryLimits says what holds the memory limits of shares on the GPU. Unset: nobody has looked yet.
	// +optional
	MemoryLimits GPUMemoryLimits `json:"memoryLimits,omitempty,omitzero"`

	// health says whether the GPU can be trusted with work. Unset: nobody has looked yet.
	// +optional
	Health GPUHealth `json:"health,omitempty,omitzero"`

	// virtual says what is known of a GPU that a hypervisor gives to the node. Unset: the GPU is a physical one.
	// +optional
	Virtual VirtualGPU `json:"virtual,omitempty,omitzero"`

	// published is what the ResourceSlices say of the GPU now; unset where it is not published.
	// +optional
	Published PublishedForm `json:"published,omitempty,omitzero"`

	// reason says in one word why the GPU is published as it is, or is not: Published, NoPool, InUse, MIGModeOff, ...
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says in a sentence why the GPU is not published as decided, and what to do. Unset where it is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// MIGModeState is what NVML says of a GPU's MIG mode.
// +kubebuilder:validation:Enum=Enabled;Disabled;Unsupported
type MIGModeState string

const (
	// MIGEnabled: instances can be created.
	MIGEnabled MIGModeState = "Enabled"
	// MIGDisabled: the GPU is used whole.
	MIGDisabled MIGModeState = "Disabled"
	// MIGUnsupported: the board or its driver has no MIG.
	MIGUnsupported MIGModeState = "Unsupported"
)

// PublishedForm is how a GPU is offered to the scheduler.
type PublishedForm struct {
	// pool is the pool that the devices are published for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	Pool string `json:"pool,omitempty"`

	// partitioning is None or MIG.
	// +required
	Partitioning PartitioningType `json:"partitioning,omitempty"`

	// strategy is Dynamic or Static; unset with partitioning None, and with MIG: Dynamic.
	// +optional
	Strategy MIGStrategy `json:"strategy,omitempty"`

	// sharing is the published sharing mode.
	// +required
	Sharing SharingMode `json:"sharing,omitempty"`

	// taint is the reason of the published taint; unset where there is none.
	// +optional
	Taint TaintReason `json:"taint,omitempty"`
}

// MIGInstance is one MIG instance that exists.
type MIGInstance struct {
	// start is the first memory slice, 0 to 15.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	Start *int32 `json:"start,omitempty"`

	// profile is the instance's profile, such as 1g.10gb.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Profile string `json:"profile,omitempty"`

	// uuid is the MIG device's UUID; unset where the instance has no compute instance.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UUID string `json:"uuid,omitempty"`

	// inUse is true where a prepared claim or a process holds the instance. Unset: false.
	// +optional
	InUse *bool `json:"inUse,omitempty"`

	// heldBy names who holds the instance: pods as namespace/name, processes that belong to no claim as name (pid). Up to
	// 8 names of up to 320 characters; the last one counts the others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=320
	HeldBy []string `json:"heldBy,omitempty"`
}

// MIGProfile is a MIG profile that a board offers.
type MIGProfile struct {
	// product is the product name of the board.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=96
	Product string `json:"product,omitempty"`

	// name is the profile's name, such as 1g.10gb or 1g.10gb+me.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name,omitempty"`

	// memory is what one instance has.
	// +required
	Memory *resource.Quantity `json:"memory,omitempty"`

	// compute is what one instance has in percent of a whole GPU, rounded down, 1 to 100.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Compute int32 `json:"compute,omitempty"`

	// computeSlices is the g of the name, 1 to 16. Unset: the agent does not say, and no layout can be planned.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	ComputeSlices int32 `json:"computeSlices,omitempty"`

	// memorySlices is how many memory slices one instance takes, 1 to 16. Unset: the agent does not say, and no layout can
	// be planned.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	MemorySlices int32 `json:"memorySlices,omitempty"`

	// starts are the first memory slices at which an instance can sit, ascending, 0 to 15.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=15
	Starts []int32 `json:"starts,omitempty"`

	// max is the most instances of the profile on one GPU, 1 to 16. Unset: the agent does not say.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Max int32 `json:"max,omitempty"`

	// engines are the media engines of one instance.
	// +optional
	Engines MediaEngines `json:"engines,omitempty,omitzero"`
}

// MediaEngines are the media engines of a MIG instance. A number that is not given is 0.
// +kubebuilder:validation:MinProperties=1
type MediaEngines struct {
	// decoders is how many video decoders, 0 to 64.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	Decoders *int32 `json:"decoders,omitempty"`

	// encoders is how many video encoders, 0 to 64.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	Encoders *int32 `json:"encoders,omitempty"`

	// jpeg is how many JPEG decoders, 0 to 64.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	JPEG *int32 `json:"jpeg,omitempty"`

	// ofa is how many optical flow accelerators, 0 to 64.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	OFA *int32 `json:"ofa,omitempty"`
}

// GPUNodeList is a list of GPUNodes.
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the nodes.
	Items []GPUNode `json:"items"`
}

// Decisions are the node's GPU decisions; nil where the manager has made none.
func (n *GPUNode) Decisions() []GPUDecision {
	if n.Spec == nil {
		return nil
	}
	return n.Spec.GPUs
}

// Leaving is true where the agent is to leave the node.
func (n *GPUNode) Leaving() bool { return n.Spec != nil && n.Spec.Leave != nil && *n.Spec.Leave }

// MemoryBytes is what CUDA can use of the GPU, 0 where the agent has not said.
func (g *GPUStatus) MemoryBytes() int64 {
	if g.Memory == nil {
		return 0
	}
	return g.Memory.Value()
}

// MemoryBytes is what one instance of the profile has, 0 where the agent has not said.
func (p *MIGProfile) MemoryBytes() int64 {
	if p.Memory == nil {
		return 0
	}
	return p.Memory.Value()
}
