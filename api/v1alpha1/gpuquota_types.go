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

// QuotaAmounts are amounts by name, as in a ResourceQuota: gpus, memory, compute, or mig/<profile>.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'gpus' || k == 'memory' || k == 'compute' || (size(k) <= 40 && k.matches('^mig/[0-9]+g[.][0-9]+gb([+-][a-z0-9.]+)?$')))",message="the names are gpus, memory, compute and mig/<profile>, such as mig/1g.10gb"
type QuotaAmounts map[string]QuotaAmount

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
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gpuquotas,scope=Namespaced,shortName=gquota,categories=sluice
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.pools`
// +kubebuilder:printcolumn:name="Hard",type=string,JSONPath=`.spec.hard`
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GPUQuota struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the namespace may hold; Sluice never writes it.
	// +required
	Spec GPUQuotaSpec `json:"spec,omitzero"`
}

// GPUQuotaSpec is what a namespace may hold.
// +kubebuilder:validation:XValidation:rule="!has(self.guaranteed) || self.guaranteed.all(k, k in self.hard && quantity(string(self.guaranteed[k])).compareTo(quantity(string(self.hard[k]))) <= 0)",message="each guaranteed amount is named in hard too, and is not above it"
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
	// bounded.
	// +required
	Hard QuotaAmounts `json:"hard,omitempty"`

	// guaranteed is the part of hard that others may not borrow; each amount is named in hard too and is not above it.
	// +optional
	Guaranteed QuotaAmounts `json:"guaranteed,omitempty"`

	// perClaim bounds one claim.
	// +optional
	PerClaim PerClaimAmounts `json:"perClaim,omitempty,omitzero"`

	// enforcement is Reject (refuse what does not fit) or Queue (hold pods until there is room). Default: Reject.
	// +optional
	// +kubebuilder:default=Reject
	Enforcement QuotaEnforcement `json:"enforcement,omitempty"`
}

// PerClaimAmounts bounds one claim. Amounts are per GPU.
// +kubebuilder:validation:MinProperties=1
type PerClaimAmounts struct {
	// default is what a claim without an amount of its own gets.
	// +optional
	Default QuotaAmounts `json:"default,omitempty"`

	// max is the most one claim may ask for.
	// +optional
	Max QuotaAmounts `json:"max,omitempty"`
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
