// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of GPULedgers: the prefix and the name of the namespace or of the cohort.
const (
	// LedgerNamespacePrefix begins the name of the ledger of a namespace outside any cohort.
	LedgerNamespacePrefix = "namespace-"
	// LedgerCohortPrefix begins the name of the ledger of a cohort.
	LedgerCohortPrefix = "cohort-"
)

// Bounds of a GPULedger, which keep it below what etcd stores in one object.
const (
	// MaxLedgerNamespaces is how many namespaces one cohort may have.
	MaxLedgerNamespaces = 256
	// MaxLedgerReservations is how many allocations may be under way in one ledger.
	MaxLedgerReservations = 1024
)

// GPULedger is the manager's own record of what the namespaces of one quota domain hold: a cohort, or a namespace
// outside any. People read GPUQuota instead; nothing but the manager writes a ledger.
//
// The whole of spec is one value that changes by compare and swap: every write carries the metadata.resourceVersion that
// its writer decided on, and is decided anew when another came first. An allocation is allowed only after its cost was
// written here as a reservation, which is why quotas of a namespace, or a cohort, are held all at once.
// A ledger that is lost is counted again from the allocated claims.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=gledger
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith('namespace-') || self.metadata.name.startsWith('cohort-')",message="a ledger is named namespace-<namespace> or cohort-<cohort>"
type GPULedger struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata. The name is namespace-<namespace> or cohort-<cohort>; every write carries the
	// resourceVersion that it was decided on.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the record, written only by the manager, by compare and swap. It is one value: who wrote which part of it is not
	// kept, which would cost the API server more than the record itself.
	// +required
	// +structType=atomic
	Spec *GPULedgerSpec `json:"spec,omitempty"`
}

// GPULedgerSpec is what the namespaces of a quota domain hold. What a namespace has used, for the purpose of a decision,
// is its counted amounts and its reservations.
type GPULedgerSpec struct {
	// namespaces are those whose allocations are judged by this ledger.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Namespaces []LedgerNamespace `json:"namespaces,omitempty"`

	// reservations are the allocations that were allowed, and that the last count had not seen yet.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	Reservations []LedgerReservation `json:"reservations,omitempty"`
}

// LedgerNamespace is what one namespace holds.
type LedgerNamespace struct {
	// name is the namespace's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// countedVersion is the resourceVersion of the list of claims that counted was made from. An older list never
	// replaces it. Unset: not counted yet, so nothing may be allocated.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CountedVersion string `json:"countedVersion,omitempty"`

	// counted is what allocated claims hold, by pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Counted []LedgerCharge `json:"counted,omitempty"`

	// unknown is how many devices of allocated claims nothing describes. While there are any, counted does not go down.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown *int32 `json:"unknown,omitempty"`

	// wanted is what pods of the namespace wait for within its guarantee. It is kept from being borrowed again.
	// +optional
	Wanted LedgerWanted `json:"wanted,omitempty,omitzero"`

	// movedTo names the ledger that judges the namespace now. Unset: this one does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=73
	MovedTo string `json:"movedTo,omitempty"`
}

// LedgerCharge is amounts of one pool.
type LedgerCharge struct {
	// pool is the GPUPool's name. Unset: not known; such amounts count in every quota.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Pool string `json:"pool,omitempty"`

	// amounts are whole numbers by the names of a quota's amounts; memory is in bytes.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	Amounts map[string]int64 `json:"amounts,omitempty"`
}

// LedgerWanted is what a namespace waits for within its guarantee.
type LedgerWanted struct {
	// since is when the first of the waiting pods began to wait. Of several namespaces the first has precedence.
	// +required
	Since *metav1.MicroTime `json:"since,omitempty"`

	// until is when the precedence over others that wait within their guarantees ends: the pool's reclaim grace period
	// after since. Borrowers are kept off as long as wanted is there.
	// +required
	Until *metav1.MicroTime `json:"until,omitempty"`

	// charges are the amounts, by pool.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Charges []LedgerCharge `json:"charges,omitempty"`
}

// LedgerReservation is the cost of an allocation that was allowed and may be stored any moment.
type LedgerReservation struct {
	// uid is the claim's UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`

	// namespace is the claim's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the claim's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// version is the claim's resourceVersion to which the allocation was to be added. A claim seen at a later version
	// settles the reservation: it has the allocation, or can no longer get it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// expiry is 35 seconds after the reservation was made, the longest that the API server may
	// take to store an allocation that was allowed. A look at the claims that the API server answers later ends it.
	// +required
	Expiry *metav1.MicroTime `json:"expiry,omitempty"`

	// charges are the amounts, by pool.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Charges []LedgerCharge `json:"charges,omitempty"`
}

// GPULedgerList is a list of GPULedgers.
// +kubebuilder:object:root=true
type GPULedgerList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ledgers.
	Items []GPULedger `json:"items"`
}
