// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SharingMode says how tenants use one device together.
// +kubebuilder:validation:Enum=Exclusive;TimeSlicing;Software;MPS
type SharingMode string

const (
	// SharingExclusive gives a device to one claim at a time.
	SharingExclusive SharingMode = "Exclusive"
	// SharingTimeSlicing lets several claims use a GPU, switched by NVIDIA's driver; amounts are counted, not enforced.
	SharingTimeSlicing SharingMode = "TimeSlicing"
	// SharingSoftware lets several claims use a GPU, each with a memory limit and a compute share of its own.
	SharingSoftware SharingMode = "Software"
	// SharingMPS lets several claims use a GPU at the same time through NVIDIA's MPS, whose server holds each to its limits.
	SharingMPS SharingMode = "MPS"
)

// TimeSlice is how long NVIDIA's driver lets one process of a GPU run before the next.
// +kubebuilder:validation:Enum=Default;Short;Medium;Long
type TimeSlice string

const (
	// TimeSliceDefault is the driver's own choice.
	TimeSliceDefault TimeSlice = "Default"
	// TimeSliceShort favours tenants that need answers soon.
	TimeSliceShort TimeSlice = "Short"
	// TimeSliceMedium is between the two.
	TimeSliceMedium TimeSlice = "Medium"
	// TimeSliceLong favours throughput.
	TimeSliceLong TimeSlice = "Long"
)

// ComputePolicy says whether a tenant may have more compute than its share.
// +kubebuilder:validation:Enum=Share;Cap
type ComputePolicy string

const (
	// ComputeShare gives a tenant at least its compute share, and what nobody else wants.
	ComputeShare ComputePolicy = "Share"
	// ComputeCap never gives a tenant more than its compute share.
	ComputeCap ComputePolicy = "Cap"
)

// Condition types of a GPUPool. All are always set.
const (
	// PoolReady is True when every GPU that the pool holds is published for scheduling and its classes exist.
	PoolReady = "Ready"
	// PoolContested is True when GPUs that the pool selects are held by another pool; the message names both.
	PoolContested = "Contested"
	// PoolResourceNameConflict is True when a DeviceClass of somebody else carries a class name or an extended resource
	// name that this pool needs; the message names the class.
	PoolResourceNameConflict = "ResourceNameConflict"
	// PoolDraining is True while GPUs that must leave the pool, or a pool being deleted, wait for tenants to finish;
	// the message says who they are.
	PoolDraining = "Draining"
	// PoolOverGuaranteed is True when the quotas of the pool's cohorts guarantee more together than the pool has: not
	// all of them can be met at once. The message has the numbers.
	PoolOverGuaranteed = "OverGuaranteed"
	// PoolLayoutInvalid is True when GPUs of a pool with static layouts have none that their board can hold. They keep what
	// they have; the message says why, and which layouts would fit.
	PoolLayoutInvalid = "LayoutInvalid"
	// PoolRollingOut is True while GPUs are not yet in the form that the pool wants; the message says how many are, and
	// which GPU waits for whom.
	PoolRollingOut = "RollingOut"
	// PoolScheduleConflict is True when schedules overlap, or cannot be followed; the message names them and says what counts.
	PoolScheduleConflict = "ScheduleConflict"
	// PoolExcluding is True while GPUs that the pool holds are excluded; the message says who still holds them.
	PoolExcluding = "Excluding"
	// PoolUnhealthy is True while GPUs of the pool are suspect or lost; the message names them and says why.
	PoolUnhealthy = "Unhealthy"
)

// Reasons of GPUPool conditions.
const (
	// ReasonAllPublished: every GPU of the pool can be scheduled.
	ReasonAllPublished = "AllPublished"
	// ReasonInvalidNodeSelector: spec.nodeSelector cannot be read. The pool keeps the GPUs that it holds and gets no others.
	ReasonInvalidNodeSelector = "InvalidNodeSelector"
	// ReasonNoMatchingNodes: no GPUNode's node carries the labels of spec.nodeSelector.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonNoMatchingGPUs: nodes match, but none of their GPUs matches spec.gpuSelector and is free.
	ReasonNoMatchingGPUs = "NoMatchingGPUs"
	// ReasonGPUsNotPublished: the pool holds GPUs that their agents do not publish (yet); the message says why.
	ReasonGPUsNotPublished = "GPUsNotPublished"
	// ReasonDeviceClassMissing: a DeviceClass the pool needs could not be created.
	ReasonDeviceClassMissing = "DeviceClassMissing"
	// ReasonDeleting: the pool is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonHeldByOtherPool: another pool holds GPUs that this pool selects.
	ReasonHeldByOtherPool = "HeldByOtherPool"
	// ReasonNotContested: no other pool holds a GPU that this pool selects.
	ReasonNotContested = "NotContested"
	// ReasonForeignClass: a DeviceClass of somebody else uses a name that this pool needs.
	ReasonForeignClass = "ForeignClass"
	// ReasonNoConflict: the names that the pool needs are its own.
	ReasonNoConflict = "NoConflict"
	// ReasonTenantsRemain: pods or claims still hold GPUs that must leave the pool.
	ReasonTenantsRemain = "TenantsRemain"
	// ReasonSettling: nothing holds the GPUs that must leave any more; they leave once no allocation can be on its way.
	ReasonSettling = "Settling"
	// ReasonNothingToDrain: no GPU has to leave the pool.
	ReasonNothingToDrain = "NothingToDrain"
	// ReasonGuaranteesAboveCapacity: the guaranteed amounts sum up to more than the pool publishes.
	ReasonGuaranteesAboveCapacity = "GuaranteesAboveCapacity"
	// ReasonGuaranteesCovered: the pool has all that is guaranteed.
	ReasonGuaranteesCovered = "GuaranteesCovered"
	// ReasonNoLayout: no layout speaks of some GPUs of the pool.
	ReasonNoLayout = "NoLayout"
	// ReasonLayoutImpossible: a board cannot hold the layout that the pool wants for it.
	ReasonLayoutImpossible = "LayoutImpossible"
	// ReasonLayoutsPossible: every GPU has a layout that its board can hold, or the pool has no static layouts.
	ReasonLayoutsPossible = "LayoutsPossible"
	// ReasonProgressing: GPUs are being changed, and nobody has to be waited for.
	ReasonProgressing = "Progressing"
	// ReasonBlocked: a GPU that is to change is held by tenants or other processes.
	ReasonBlocked = "Blocked"
	// ReasonChangeFailed: a node's agent could not bring a GPU into its new form; it goes on trying.
	ReasonChangeFailed = "ChangeFailed"
	// ReasonRolledOut: every GPU that can be is in the form that the pool wants.
	ReasonRolledOut = "RolledOut"
	// ReasonInvalidTimeZone: spec.timeZone is not known. No schedule comes into force.
	ReasonInvalidTimeZone = "InvalidTimeZone"
	// ReasonInvalidOverride: the spec with a schedule's override makes no sense together. That schedule is not followed.
	ReasonInvalidOverride = "InvalidOverride"
	// ReasonSchedulesOverlap: two schedules are open at once; the first in the list counts.
	ReasonSchedulesOverlap = "SchedulesOverlap"
	// ReasonNoScheduleConflict: every schedule can be followed.
	ReasonNoScheduleConflict = "NoScheduleConflict"
	// ReasonGPUsExcluded: GPUs are excluded, and nobody holds them.
	ReasonGPUsExcluded = "GPUsExcluded"
	// ReasonNothingExcluded: no GPU of the pool is excluded.
	ReasonNothingExcluded = "NothingExcluded"
	// ReasonGPUsUnhealthy: GPUs of the pool are suspect or lost.
	ReasonGPUsUnhealthy = "GPUsUnhealthy"
	// ReasonAllHealthy: nothing is known against any GPU of the pool.
	ReasonAllHealthy = "AllHealthy"
)

// PoolQuota says whether a namespace needs a GPUQuota to use a pool.
// +kubebuilder:validation:Enum=Optional;Required
type PoolQuota string

const (
	// QuotaOptional lets a namespace without a quota use the pool without bounds.
	QuotaOptional PoolQuota = "Optional"
	// QuotaRequired gives nothing to a namespace without a quota that counts the pool.
	QuotaRequired PoolQuota = "Required"
)

// GPUPool says which GPUs belong together, how each is divided and how far it is overcommitted.
//
// A pool takes the GPUs that its selectors match. Where two pools select the same GPU, the one that holds it keeps it
// until nothing is allocated on it; otherwise the older pool has it, then the one whose name sorts first.
// Deleting a pool taints its GPUs, waits until their tenants have finished, then removes the pool's classes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gpool,categories=sluice
// +kubebuilder:printcolumn:name="Partitioning",type=string,JSONPath=`.spec.partitioning.type`
// +kubebuilder:printcolumn:name="Sharing",type=string,JSONPath=`.status.sharingMode`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="GPUs",type=string,JSONPath=`.status.summary`,description="GPUs with a tenant / GPUs held · memory allocated / published"
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.conditions[?(@.type=="RollingOut")].reason`,priority=1
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.status.schedule.active`,priority=1
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.spec.default`,priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a pool's name is a DNS label of at most 52 characters: lower-case letters, digits and hyphens"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'gpu' && !self.metadata.name.startsWith('mig-')",message="a pool is not named gpu nor mig-...: those names belong to the device classes of whole GPUs and MIG instances"
type GPUPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata. The name is a DNS label of at most 52 characters, not gpu, not starting mig-.
	// The DeviceClass of a pool of whole GPUs is <name>.sluice.dev; MIG pools have one class for each profile that their
	// boards offer, mig-<profile>.sluice.dev, which they share.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the platform team wants; Sluice never writes it.
	// +required
	Spec GPUPoolSpec `json:"spec,omitempty,omitzero"`

	// status is what the manager observed.
	// +optional
	Status GPUPoolStatus `json:"status,omitempty,omitzero"`
}

// GPUPoolSpec is the intent for a set of GPUs.
// +kubebuilder:validation:XValidation:rule="self.partitioning.type != 'MIG' || !has(self.partitioning.mig) || self.partitioning.mig.strategy != 'Dynamic' || !has(self.sharing) || !has(self.sharing.mode) || self.sharing.mode == 'Exclusive'",message="with partitioning.type MIG and strategy Dynamic the sharing mode is Exclusive: leave sharing.mode out or set it to Exclusive"
// +kubebuilder:validation:XValidation:rule="self.partitioning.type != 'MIG' || !has(self.sharing) || !has(self.sharing.mode) || self.sharing.mode != 'TimeSlicing'",message="MIG instances are not shared by TimeSlicing: choose sharing.mode Exclusive, Software or MPS"
// +kubebuilder:validation:XValidation:rule="!((has(self.sharing) && has(self.sharing.mode)) ? self.sharing.mode == 'Exclusive' : self.partitioning.type == 'MIG') || !has(self.overcommit) || (self.overcommit.memoryPercent == 100 && self.overcommit.computePercent == 100)",message="exclusive devices cannot be overcommitted: leave overcommit out, or choose sharing.mode Software, TimeSlicing or MPS"
// +kubebuilder:validation:XValidation:rule="!((has(self.sharing) && has(self.sharing.mode)) ? self.sharing.mode == 'Exclusive' : self.partitioning.type == 'MIG') || !has(self.sharing) || !(has(self.sharing.maxTenantsPerDevice) || has(self.sharing.defaultMemory) || has(self.sharing.defaultCompute))",message="maxTenantsPerDevice, defaultMemory and defaultCompute are for shared devices (sharing.mode Software, TimeSlicing or MPS): an exclusive device is given whole"
// +kubebuilder:validation:XValidation:rule="!has(self.schedules) || has(self.timeZone)",message="schedules need a timeZone, such as Europe/Berlin or UTC"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.sharing.compute) || (has(self.sharing.mode) ? self.sharing.mode == 'Software' : self.partitioning.type != 'MIG')",message="sharing.compute is for sharing.mode Software, the only one in which compute shares are held"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.sharing.memoryLimits) || (has(self.sharing.mode) ? self.sharing.mode == 'Software' : self.partitioning.type != 'MIG')",message="sharing.memoryLimits is for sharing.mode Software, the only one in which Sluice holds memory limits"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.sharing.onViolation) || (has(self.sharing.mode) ? self.sharing.mode == 'Software' : self.partitioning.type != 'MIG')",message="sharing.onViolation is for sharing.mode Software, the only one in which Sluice holds memory limits"
// +kubebuilder:validation:MinProperties=1
type GPUPoolSpec struct {
	// nodeSelector chooses nodes by their labels, as a Deployment's selector does. Empty or unset: every node that
	// runs a node agent. Prefer labels below node-restriction.kubernetes.io/, which a node cannot give to itself.
	// A selector that cannot be read gives the pool nothing new and takes nothing away; condition Ready says what is wrong.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="each of nodeSelector.matchExpressions has operator In or NotIn with values, or Exists or DoesNotExist without"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// gpuSelector chooses GPUs on those nodes. Its lists are joined by AND; inside a list any entry is enough.
	// Unset: every GPU.
	// +optional
	GPUSelector GPUSelector `json:"gpuSelector,omitempty,omitzero"`

	// default makes this the pool of pods that ask for GPUs without naming a pool. At most one pool should say true;
	// with two, pods that name no pool are refused with both names. Default: false.
	// +optional
	// +kubebuilder:default=false
	Default *bool `json:"default,omitempty"`

	// partitioning says how each GPU is divided in hardware. Default: {type: None}.
	// +optional
	// +kubebuilder:default={type: "None"}
	Partitioning Partitioning `json:"partitioning,omitempty,omitzero"`

	// sharing says how tenants use one device together. Unset: mode Software for whole GPUs, Exclusive for MIG.
	// +optional
	Sharing Sharing `json:"sharing,omitempty,omitzero"`

	// overcommit says how much more than it has a shared GPU promises. Unset: nothing more.
	// +optional
	Overcommit *Overcommit `json:"overcommit,omitempty"`

	// tenancy says which namespaces may use the pool, and on which terms. Unset: every namespace, quotas being optional.
	// +optional
	Tenancy Tenancy `json:"tenancy,omitempty,omitzero"`

	// rollout says how a change reaches GPUs that have tenants. Unset: one GPU after the other, and tenants are waited for.
	// +optional
	Rollout Rollout `json:"rollout,omitempty,omitzero"`

	// excluded are GPUs that take no new tenants although the pool selects them; tenants that they have are drained as
	// rollout says. Up to 64.
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=64
	Excluded []ExcludedGPU `json:"excluded,omitempty"`

	// timeZone is where the clocks of schedules hang, a name of the IANA data base such as Asia/Shanghai, or UTC, 1 to 64
	// characters. Required with schedules.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`

	// schedules are times in which the pool divides or overcommits its GPUs in another way. Where two are open at once,
	// the first in the list counts. Up to 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Schedules []Schedule `json:"schedules,omitempty"`
}

// Tenancy says which namespaces may use a pool, and on which terms. What is allocated already stays when it changes.
// +kubebuilder:validation:MinProperties=1
type Tenancy struct {
	// namespaceSelector chooses the namespaces that may use the pool, by their labels. Empty or unset: every namespace.
	// A selector that cannot be read matches none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="each of namespaceSelector.matchExpressions has operator In or NotIn with values, or Exists or DoesNotExist without"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// quota is Optional, or Required: a namespace without a GPUQuota that counts the pool gets nothing. Default: Optional.
	// +optional
	// +kubebuilder:default=Optional
	Quota PoolQuota `json:"quota,omitempty"`

	// cohorts are groups of namespaces whose GPUQuotas lend each other what they do not use of what is guaranteed to
	// them. A quota joins by its field cohort. Up to 32. Unset: nobody lends.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Cohorts []Cohort `json:"cohorts,omitempty"`

	// reclaimGracePeriodSeconds is how long a pod that is evicted from what it borrowed gets to end, where its own
	// termination grace period is longer: within that time a guarantee is met, unless a PodDisruptionBudget
	// forbids the eviction. 0 to 3600. Default: 60.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ReclaimGracePeriodSeconds *int32 `json:"reclaimGracePeriodSeconds,omitempty"`
}

// Cohort is a group of namespaces whose quotas may lend to each other.
type Cohort struct {
	// name is the cohort's name, a DNS label of at most 52 characters. Cohorts of the same name in several pools are one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// namespaceSelector chooses the namespaces whose quotas may join, by their labels. Empty or unset: every namespace.
	// A selector that cannot be read matches none; condition Joined of the quotas says so.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// GPUSelector chooses GPUs. The lists are joined by AND; inside a list any entry is enough.
// +kubebuilder:validation:MinProperties=1
type GPUSelector struct {
	// products are product names as NVML gives them (kubectl get gpunodes shows them), with * for any characters:
	// "NVIDIA H100*". Spaces may be written as hyphens, as in node labels. Up to 16 patterns of 1 to 96 characters. Unset: any product.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=96
	Products []string `json:"products,omitempty"`

	// uuids are GPU UUIDs, GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx. Up to 256. Unset: any GPU.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=40
	// +kubebuilder:validation:items:Pattern=`^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	UUIDs []string `json:"uuids,omitempty"`

	// minors are the device minor numbers on each node, 0 to 255 (the N of /dev/nvidiaN). A minor can change when a
	// GPU is lost and the node reboots; prefer uuids where a GPU is meant for good. Unset: any minor.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=255
	Minors []int32 `json:"minors,omitempty"`
}

// Sharing says how tenants use one device together.
// +kubebuilder:validation:XValidation:rule="!has(self.timeSlice) || (has(self.mode) && self.mode == 'TimeSlicing')",message="timeSlice is for mode TimeSlicing: the other modes do not leave turns to NVIDIA's driver"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'MPS' || !has(self.maxTenantsPerDevice) || self.maxTenantsPerDevice <= 48",message="with mode MPS maxTenantsPerDevice is at most 48: a server takes no more clients"
// +kubebuilder:validation:MinProperties=1
type Sharing struct {
	// mode is Exclusive (one claim a device), TimeSlicing (several, nothing enforced), Software (several, each with
	// its own memory limit and compute share) or MPS (several at the same time, held to their limits by NVIDIA's MPS). MIG
	// with strategy Dynamic is always Exclusive, MIG instances are never TimeSlicing. Unset: Software for whole GPUs,
	// Exclusive for MIG.
	// +optional
	Mode SharingMode `json:"mode,omitempty"`

	// maxTenantsPerDevice bounds how many shares one GPU or MIG instance gives, 1 to 128; with MPS at most 48. Unset: 16.
	// Shared modes only.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	MaxTenantsPerDevice int32 `json:"maxTenantsPerDevice,omitempty"`

	// defaultMemory is the memory of a share whose claim names none, a quantity of at least 1Mi in whole Mi.
	// Unset, or more than a GPU has: the whole GPU's memory. With Software sharing a share is never smaller than 704Mi, which a
	// process needs to start. Shared modes only.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() % 1048576 == 0",message="defaultMemory is at least 1Mi and a whole number of Mi, such as 8Gi"
	DefaultMemory *resource.Quantity `json:"defaultMemory,omitempty"`

	// defaultCompute is the compute of a share whose claim names none, in percent of one GPU, 0 to 100.
	// 0, the default, promises only idle time. Shared modes only.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	DefaultCompute *int32 `json:"defaultCompute,omitempty"`

	// compute is Share (a tenant has at least its compute share while others want the GPU, and what nobody wants) or Cap
	// (a tenant never has more than its compute share, even where the GPU is idle). A share of 0 is never capped: it is only
	// ever idle time. A change holds for running tenants too. Unset: Share. Mode Software only.
	// +optional
	Compute ComputePolicy `json:"compute,omitempty"`

	// memoryLimits says what holds a tenant to its memory: Auto (the driver, by cgroup, where it can: R615 and newer, cgroup
	// v2, whole GPUs; the library in every case), Driver (the same, and where the driver cannot nothing is prepared) or
	// Interceptor (the library alone). GPUNode.status and the device attribute memoryLimits say which one holds on a GPU.
	// A change holds for shares prepared from then on. Unset: Auto. Mode Software only.
	// +optional
	MemoryLimits MemoryLimits `json:"memoryLimits,omitempty"`

	// onViolation says what happens when a share's processes hold more memory together than its limit, as NVML sees them:
	// Report (an event on the pod, a condition of the GPUNode, a metric), Evict (also the pods are evicted, which
	// PodDisruptionBudgets can delay) or Kill (also the share's processes on that GPU are killed). Unset: Report.
	// Mode Software only.
	// +optional
	OnViolation ViolationAction `json:"onViolation,omitempty"`

	// timeSlice is how long NVIDIA's driver lets one process run before the next: Default, Short, Medium or Long. It holds
	// for the whole GPU. Unset: Default. Mode TimeSlicing only.
	// +optional
	TimeSlice TimeSlice `json:"timeSlice,omitempty"`
}

// Overcommit says how much more than it has a shared GPU promises.
type Overcommit struct {
	// memoryPercent is what a GPU publishes in percent of its memory, 100 to 1000. One claim never gets more than the
	// GPU has. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	MemoryPercent int32 `json:"memoryPercent,omitempty"`

	// computePercent is what a GPU publishes in percent of its compute, 100 to 1000. One claim never gets more than
	// 100. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	ComputePercent int32 `json:"computePercent,omitempty"`
}

// GPUPoolStatus is what the manager observed of a pool. It holds counts, never lists of pods.
// +kubebuilder:validation:MinProperties=1
type GPUPoolStatus struct {
	// conditions are Ready, Contested, ResourceNameConflict, Draining, OverGuaranteed, LayoutInvalid, RollingOut,
	// ScheduleConflict, Excluding and Unhealthy; their meaning and reasons are documented with the constants of the API
	// package.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of spec that the last successful reconciliation saw.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// sharingMode is the mode in force: spec.sharing.mode, or the default for the partitioning.
	// +optional
	SharingMode SharingMode `json:"sharingMode,omitempty"`

	// summary is one line for people: GPUs with a tenant / GPUs held · memory allocated / published.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Summary string `json:"summary,omitempty"`

	// nodes is how many nodes give GPUs to the pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Nodes *int32 `json:"nodes,omitempty"`

	// gpus counts the pool's GPUs.
	// +optional
	GPUs PoolGPUCount `json:"gpus,omitempty,omitzero"`

	// memory sums the pool's GPU memory.
	// +optional
	Memory PoolMemory `json:"memory,omitempty,omitzero"`

	// rollout counts GPUs by how far the change to the form that the pool wants has come.
	// +optional
	Rollout PoolRollout `json:"rollout,omitempty,omitzero"`

	// schedule says which of the schedules is in force. Unset where there are none.
	// +optional
	Schedule PoolSchedule `json:"schedule,omitempty,omitzero"`

	// repacking lists the MIG profiles of which more instances would fit if GPUs were drained and their instances placed
	// anew. It is a report: nothing is moved. Strategy Dynamic only. Up to 64.
	// +optional
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MaxItems=64
	Repacking []RepackingGain `json:"repacking,omitempty"`
}

// PoolGPUCount counts GPUs of a pool.
type PoolGPUCount struct {
	// held is how many GPUs the pool holds.
	// +required
	// +kubebuilder:validation:Minimum=0
	Held *int32 `json:"held,omitempty"`

	// published is how many of them their agents offer to the scheduler.
	// +required
	// +kubebuilder:validation:Minimum=0
	Published *int32 `json:"published,omitempty"`

	// allocated is how many of them have at least one allocated claim.
	// +required
	// +kubebuilder:validation:Minimum=0
	Allocated *int32 `json:"allocated,omitempty"`

	// unhealthy is how many of them are suspect or lost. Unset: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unhealthy *int32 `json:"unhealthy,omitempty"`

	// excluded is how many of them are excluded. Unset: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Excluded *int32 `json:"excluded,omitempty"`
}

// PoolMemory sums GPU memory of a pool.
type PoolMemory struct {
	// physical is what CUDA can use of the GPUs that the pool holds.
	// +required
	Physical *resource.Quantity `json:"physical,omitempty"`

	// published is physical × memoryPercent ÷ 100 of those that their agents offer to the scheduler.
	// +required
	Published *resource.Quantity `json:"published,omitempty"`

	// allocated is what allocated claims hold: their amount on shared GPUs, the device's whole memory elsewhere.
	// +required
	Allocated *resource.Quantity `json:"allocated,omitempty"`
}

// GPUPoolList is a list of GPUPools.
// +kubebuilder:object:root=true
type GPUPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the pools.
	Items []GPUPool `json:"items"`
}

// DefaultMaxTenants is how many shares a GPU gives where the pool does not say.
const DefaultMaxTenants int32 = 16

// SharingMode is the mode in force: the one written, else Exclusive for MIG and Software for whole GPUs.
func (p *GPUPool) SharingMode() SharingMode {
	switch {
	case p.Spec.Sharing.Mode != "":
		return p.Spec.Sharing.Mode
	case p.Spec.Partitioning.Type == PartitioningMIG:
		return SharingExclusive
	default:
		return SharingSoftware
	}
}

// DefaultReclaimGraceSeconds is how long an evicted borrower gets to end where the pool does not say.
const DefaultReclaimGraceSeconds int32 = 60

// ReclaimGraceSeconds is how long an evicted borrower gets to end.
func (p *GPUPool) ReclaimGraceSeconds() int32 {
	if p.Spec.Tenancy.ReclaimGracePeriodSeconds == nil {
		return DefaultReclaimGraceSeconds
	}
	return *p.Spec.Tenancy.ReclaimGracePeriodSeconds
}

// IsDefault says whether pods that name no pool are meant for this one.
func (p *GPUPool) IsDefault() bool { return p.Spec.Default != nil && *p.Spec.Default }
