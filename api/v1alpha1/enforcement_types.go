// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MemoryLimits says what holds a tenant to its memory.
// +kubebuilder:validation:Enum=Auto;Driver;Interceptor
type MemoryLimits string

const (
	// MemoryLimitsAuto lets the driver hold limits by cgroup where it can, and the library hold them everywhere.
	MemoryLimitsAuto MemoryLimits = "Auto"
	// MemoryLimitsDriver prepares shares only where the driver holds their limits.
	MemoryLimitsDriver MemoryLimits = "Driver"
	// MemoryLimitsInterceptor leaves the driver's limits alone: the library alone holds shares.
	MemoryLimitsInterceptor MemoryLimits = "Interceptor"
)

// ViolationAction is what happens to a share that holds more memory than it may.
// +kubebuilder:validation:Enum=Report;Evict;Kill
type ViolationAction string

const (
	// ViolationReport tells of it: in an event, a condition and a metric.
	ViolationReport ViolationAction = "Report"
	// ViolationEvict tells of it and evicts the share's pods, through the Eviction API.
	ViolationEvict ViolationAction = "Evict"
	// ViolationKill tells of it and kills the share's processes that use the GPU.
	ViolationKill ViolationAction = "Kill"
)

// Condition types of a GPUNode that say whether its tenants keep to their limits. Always set by the node's agent.
const (
	// NodeLimitsViolated is True while a share of the node holds more memory than it may; the message names pods.
	NodeLimitsViolated = "LimitsViolated"
	// NodeMemoryUnverified is True while NVML gives no figure for a process of a share, so that nobody can say whether
	// the share keeps to its limit; the message names pods and GPUs.
	NodeMemoryUnverified = "MemoryUnverified"
)

// Reasons of LimitsViolated and MemoryUnverified, and of a violation.
const (
	// ReasonWithinLimits: every share holds at most what it may, as NVML sees it.
	ReasonWithinLimits = "WithinLimits"
	// ReasonOverLimit: what a share's processes hold together is over its limit by more than the margin, at two looks.
	ReasonOverLimit = "OverLimit"
	// ReasonUnregisteredProcess: a process in a container with a share uses the GPU, and the library does not know it.
	// It may be within the limit; it is not held to it.
	ReasonUnregisteredProcess = "UnregisteredProcess"
	// ReasonNoFigures: NVML names a process of a share without saying what it holds.
	ReasonNoFigures = "NoFigures"
	// ReasonVerified: NVML says what every process of every share holds, or there is none.
	ReasonVerified = "Verified"
)

// Violation is a share that holds more memory than it may, or that is used past the library.
type Violation struct {
	// claimUID is the UID of the share's ResourceClaim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ClaimUID string `json:"claimUID,omitempty"`

	// result is the index of the share's result in the claim's allocation, 0 to 31.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31
	Result *int32 `json:"result,omitempty"`

	// claim is the ResourceClaim as namespace/name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=320
	Claim string `json:"claim,omitempty"`

	// pods are the pods that use the share, as namespace/name, those whose processes were seen first. Up to 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=320
	Pods []string `json:"pods,omitempty"`

	// gpu is the UUID of the GPU.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	GPU string `json:"gpu,omitempty"`

	// reason is OverLimit or UnregisteredProcess.
	// +required
	// +kubebuilder:validation:Enum=OverLimit;UnregisteredProcess
	Reason string `json:"reason,omitempty"`

	// held is what NVML says that the share's processes hold together.
	// +optional
	Held *resource.Quantity `json:"held,omitempty"`

	// limit is the highest limit that was in force since the share was last seen within its limit.
	// +optional
	Limit *resource.Quantity `json:"limit,omitempty"`

	// processes are the processes that the library does not know, as name (pid), largest first. Up to 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=320
	Processes []string `json:"processes,omitempty"`

	// action is what the pool says is done about it: Report, Evict or Kill.
	// +required
	Action ViolationAction `json:"action,omitempty"`

	// since is when it was found.
	// +required
	Since *metav1.Time `json:"since,omitempty"`
}

// LimitsBackend is where NVIDIA's driver keeps the memory limits of cgroups.
// +kubebuilder:validation:Enum=dmem;misc
type LimitsBackend string

const (
	// LimitsBackendDmem: the kernel's dmem controller, which is hierarchical: a pod's cgroup bounds its containers.
	LimitsBackendDmem LimitsBackend = "dmem"
	// LimitsBackendMisc: a map of the driver's own. Limits do not nest.
	LimitsBackendMisc LimitsBackend = "misc"
)

// Reasons why the library alone holds the memory limits on a GPU.
const (
	// ReasonDriverTooOld: the driver has no memory limits by cgroup (it came with R615).
	ReasonDriverTooOld = "DriverTooOld"
	// ReasonCgroupV1: the node does not have cgroup v2 at /sys/fs/cgroup.
	ReasonCgroupV1 = "CgroupV1"
	// ReasonMIGInstances: MIG instances have no memory limits by cgroup; what an instance has is held by the hardware.
	ReasonMIGInstances = "MIGInstances"
	// ReasonLimitsRefused: the driver refused a limit that the agent tried; the message has its answer.
	ReasonLimitsRefused = "LimitsRefused"
	// ReasonPoolDecides: the pool says Interceptor, or has no Software sharing.
	ReasonPoolDecides = "PoolDecides"
)

// GPUMemoryLimits says what holds the memory limits of shares on a GPU.
type GPUMemoryLimits struct {
	// heldBy is Driver (by cgroup: a hard boundary, also for programs that the library is not in) or Interceptor.
	// +required
	HeldBy MemoryLimits `json:"heldBy,omitempty"`

	// backend is where the driver keeps them: dmem or misc. Unset where the library alone holds them.
	// +optional
	Backend LimitsBackend `json:"backend,omitempty"`

	// reason says in one word why the library alone holds them: DriverTooOld, CgroupV1, MIGInstances, LimitsRefused or
	// PoolDecides. Unset where the driver does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message is the same as a sentence.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
