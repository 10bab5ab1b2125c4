// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QuotaEnforcement says what happens to a request above the quota.
// +kubebuilder:validation:Enum=Reject;Queue
type QuotaEnforcement string

const (
	// EnforcementReject refuses what does not fit.
	EnforcementReject QuotaEnforcement = "Reject"
	// EnforcementQueue holds pods until there is room.
	EnforcementQueue QuotaEnforcement = "Queue"
)

// Names of the amounts that a quota counts.
const (
	// QuotaGPUs counts whole exclusive GPUs and shares of GPUs, each as 1.
	QuotaGPUs = "gpus"
	// QuotaMemory counts bytes of GPU memory.
	QuotaMemory = "memory"
	// QuotaCompute counts percent of one GPU.
	QuotaCompute = "compute"
	// QuotaMIGPrefix and a profile, such as mig/1g.10gb, count MIG instances of the profile.
	QuotaMIGPrefix = "mig/"
)

// QuotaGate is the scheduling gate of pods that wait for their namespace's quota.
const QuotaGate = "sluice.dev/quota"

// Condition types of a GPUQuota. All are always set.
const (
	// QuotaReady is True when the quota is counted and held. It does not turn False for being full, exceeded or borrowed from.
	QuotaReady = "Ready"
	// QuotaExceeded is True while the namespace holds more than hard: the quota was lowered or made late. What runs is
	// kept, more is refused; the message has the numbers.
	QuotaExceeded = "Exceeded"
	// QuotaJoined is True when the quota belongs to the cohort that it names, so that guaranteed holds.
	QuotaJoined = "Joined"
	// QuotaBorrowing is True while the namespace holds more than its guarantee of an amount that its cohort shares.
	QuotaBorrowing = "Borrowing"
	// QuotaReclaiming is True while pods wait within the guarantee for what the namespace lent to come back.
	QuotaReclaiming = "Reclaiming"
)

// Reasons of GPUQuota conditions.
const (
	// ReasonEnforced: Ready; every allocation of the namespace is held against the quota.
	ReasonEnforced = "Enforced"
	// ReasonCounting: not Ready; what the namespace holds is being counted. Until then new allocations wait.
	ReasonCounting = "Counting"
	// ReasonUncounted: not Ready; the cost of a claim that runs is not known, since nothing describes its device (yet).
	ReasonUncounted = "Uncounted"
	// ReasonPoolNotFound: not Ready; spec.pools names a GPUPool that does not exist. The others are held.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonAboveHard: Exceeded; the namespace holds more than hard.
	ReasonAboveHard = "AboveHard"
	// ReasonWithinHard: not Exceeded.
	ReasonWithinHard = "WithinHard"
	// ReasonJoined: Joined; every pool of spec.pools offers the cohort to the namespace.
	ReasonJoined = "Joined"
	// ReasonNoCohort: not Joined; the quota names no cohort.
	ReasonNoCohort = "NoCohort"
	// ReasonCohortNotOffered: not Joined; a pool of spec.pools does not offer the cohort to the namespace. The quota
	// neither lends nor borrows, and nothing is guaranteed; hard holds.
	ReasonCohortNotOffered = "CohortNotOffered"
	// ReasonOtherCohort: not Joined; an older quota of the namespace names another cohort, and a namespace has one.
	ReasonOtherCohort = "OtherCohort"
	// ReasonAboveGuarantee: Borrowing; the message has the numbers.
	ReasonAboveGuarantee = "AboveGuarantee"
	// ReasonWithinGuarantee: not Borrowing.
	ReasonWithinGuarantee = "WithinGuarantee"
	// ReasonWaitingForLent: Reclaiming; borrowed pods of others were asked to end, or will be.
	ReasonWaitingForLent = "WaitingForLent"
	// ReasonBlockedByDisruptionBudget: Reclaiming; PodDisruptionBudgets keep the borrowed pods that would have to end.
	ReasonBlockedByDisruptionBudget = "BlockedByDisruptionBudget"
	// ReasonNothingToReclaim: not Reclaiming.
	ReasonNothingToReclaim = "NothingToReclaim"
)

// QuotaAmounts are amounts by name, as in a ResourceQuota: gpus, memory, compute, or mig/<profile>.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'gpus' || k == 'memory' || k == 'compute' || (size(k) <= 40 && k.matches('^mig/[0-9]+g[.][0-9]+gb([+-][a-z0-9.]+)?$')))",message="the names are gpus, memory, compute and mig/<profile>, such as mig/1g.10gb"
type QuotaAmounts map[string]QuotaAmount

// ShareAmounts are amounts of one GPU or MIG instance by name: memory (bytes) and compute (percent of one GPU).
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=2
// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'memory' || k == 'compute')",message="the amounts of one claim are memory and compute, of each GPU"
type ShareAmounts map[string]QuotaAmount

// QuotaAmount is a quantity that is whole and not negative, such as 8 or 160Gi. It is at most 20 characters long.
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:MaxLength=20
// +kubebuilder:validation:Pattern=`^[0-9]+([kMGTPE]|[KMGTPE]i)?$`
// +kubebuilder:validation:XValidation:rule="!string(self).startsWith('-')",message="amounts are not negative"
type QuotaAmount struct {
	resource.Quantity `json:",inline"`
}

// GPUQuota says what the tenants of a namespace may hold of the cluster's GPUs.
//
// Counted is what allocated claims hold, whatever form the request took and whoever owns the claim: each device of a
// claim costs its part. A share of a GPU costs gpus 1 and its memory and compute. An exclusive GPU costs gpus 1, a MIG
// instance mig/<profile> 1, and each its whole memory and compute. A claim that is not allocated costs nothing, nor does admin access.
// Several quotas in one namespace all hold. A quota made late counts what runs already. One lowered below what is in
// use keeps what runs and refuses more. A quota that is being deleted holds until it is gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=gpuquotas,scope=Namespaced,shortName=gquota,categories=sluice
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.summary`,description="used/hard of each amount · pods that wait"
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.pools`,priority=1
// +kubebuilder:printcolumn:name="Cohort",type=string,JSONPath=`.spec.cohort`,priority=1
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Exceeded",type=string,JSONPath=`.status.conditions[?(@.type=="Exceeded")].status`
// +kubebuilder:printcolumn:name="Borrowing",type=string,JSONPath=`.status.conditions[?(@.type=="Borrowing")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GPUQuota struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the namespace may hold; Sluice never writes it.
	// +required
	Spec GPUQuotaSpec `json:"spec,omitzero"`

	// status is what the manager counted.
	// +optional
	Status GPUQuotaStatus `json:"status,omitempty,omitzero"`
}

// GPUQuotaSpec is what a namespace may hold.
// +kubebuilder:validation:XValidation:rule="!has(self.guaranteed) || self.guaranteed.all(k, k in self.hard && quantity(string(self.guaranteed[k])).compareTo(quantity(string(self.hard[k]))) <= 0)",message="each guaranteed amount is named in hard too, and is not above it"
// +kubebuilder:validation:XValidation:rule="!has(self.guaranteed) || has(self.cohort)",message="guaranteed is what others of a cohort may not keep: name the cohort too, one of the pool's tenancy.cohorts"
// +kubebuilder:validation:XValidation:rule="!has(self.cohort) || has(self.pools)",message="a quota of a cohort names its pools: quotas lend to each other what they have of the same pools"
type GPUQuotaSpec struct {
	// pools are the GPUPools that the amounts count in, up to 32 names. Unset: all pools.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=52
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Pools []string `json:"pools,omitempty"`

	// hard is the most that the namespace's allocated claims may hold together: gpus (a number of GPUs or shares),
	// memory (bytes), compute (percent of one GPU), mig/<profile> (a number of instances). What is not named is not
	// bounded; 0 is none.
	// +required
	Hard QuotaAmounts `json:"hard,omitempty"`

	// cohort names the cohort that the quota belongs to, one that each of its pools offers to the namespace in
	// tenancy.cohorts. Quotas of one cohort with the same pools lend each other what they do not use of guaranteed: together they
	// hold at most the sum of their guaranteed amounts, each at most its hard. What nobody of them names in guaranteed is bounded by hard only. A
	// namespace belongs to one cohort: the one that its oldest quota names. Unset: no lending, no borrowing.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Cohort string `json:"cohort,omitempty"`

	// guaranteed is the part of hard that comes back from others of the cohort when the namespace needs it: their newest
	// borrowed pods of the lowest priority are evicted. Each amount is named in hard too and is not above it.
	// +optional
	Guaranteed QuotaAmounts `json:"guaranteed,omitempty"`

	// perClaim bounds one claim.
	// +optional
	PerClaim PerClaimAmounts `json:"perClaim,omitempty,omitzero"`

	// enforcement is Reject (refuse what does not fit) or Queue (hold pods until there is room, the highest priority
	// first, then the oldest). Default: Reject.
	// +optional
	// +kubebuilder:default=Reject
	Enforcement QuotaEnforcement `json:"enforcement,omitempty"`
}

// PerClaimAmounts bounds what one claim gets of each GPU or MIG instance.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min.all(k, !(k in self.max) || quantity(string(self.min[k])).compareTo(quantity(string(self.max[k]))) <= 0)",message="perClaim.min is not above perClaim.max"
// +kubebuilder:validation:XValidation:rule="!has(self.default) || ((!has(self.max) || self.default.all(k, !(k in self.max) || quantity(string(self.default[k])).compareTo(quantity(string(self.max[k]))) <= 0)) && (!has(self.min) || self.default.all(k, !(k in self.min) || quantity(string(self.default[k])).compareTo(quantity(string(self.min[k]))) >= 0)))",message="perClaim.default is not above perClaim.max and not below perClaim.min"
type PerClaimAmounts struct {
	// default is written into pods that ask for a share of a GPU without an amount of their own.
	// Claims that are written by hand get what the pool gives by default.
	// +optional
	Default ShareAmounts `json:"default,omitempty"`

	// min is the least that one claim may ask for, of each GPU.
	// +optional
	Min ShareAmounts `json:"min,omitempty"`

	// max is the most that one claim may ask for, of each GPU.
	// +optional
	Max ShareAmounts `json:"max,omitempty"`
}

// GPUQuotaStatus is what the manager counted. It holds counts, never lists of pods.
// +kubebuilder:validation:MinProperties=1
type GPUQuotaStatus struct {
	// conditions are Ready, Exceeded, Joined, Borrowing and Reclaiming; their meaning and reasons are documented with the
	// constants of the API package.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of spec that the last successful count was held against.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// summary is one line for people: used/hard of each amount, and how many pods wait:
	// memory 120/160Gi · compute 300/400 · 1g.10gb 2/4 · waiting 3.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Summary string `json:"summary,omitempty"`

	// used is what allocated claims hold of the amounts that hard names, in the quota's pools, with allocations that are
	// under way. It follows the ledger that decides, where it is never less than is allocated, and more for at most 35
	// seconds, within a second or two.
	// +optional
	Used QuotaAmounts `json:"used,omitempty"`

	// borrowed is what is used above guaranteed, of the amounts that the cohort shares.
	// +optional
	Borrowed QuotaAmounts `json:"borrowed,omitempty"`

	// lent is the part of guaranteed that others of the cohort hold. Where several could have lent it, each lent in
	// proportion to what it does not use.
	// +optional
	Lent QuotaAmounts `json:"lent,omitempty"`

	// waiting is how many pods of the namespace wait for room in this quota.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Waiting *int32 `json:"waiting,omitempty"`
}

// GPUQuotaList is a list of GPUQuotas.
// +kubebuilder:object:root=true
type GPUQuotaList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the quotas.
	Items []GPUQuota `json:"items"`
}
