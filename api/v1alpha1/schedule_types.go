// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
type Weekday string

// Schedule is a time that comes again every week, in which a pool is another one.
type Schedule struct {
	// name is how conditions and metrics call the schedule, 1 to 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// days are those on which the time begins: Mon, Tue, Wed, Thu, Fri, Sat, Sun. Unset: every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`

	// start is when the time begins, HH:MM from 00:00 to 23:59, by the clocks of timeZone. A time of day that the clocks
	// leave out begins with the one after the gap; one that they show twice begins with the first.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +kubebuilder:validation:MaxLength=5
	Start string `json:"start,omitempty"`

	// end is when the time ends, HH:MM: the same day where it is later than start, else the day after.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +kubebuilder:validation:MaxLength=5
	End string `json:"end,omitempty"`

	// leadSeconds is how long before start GPUs that are to change their form take no new tenants, so that they are free
	// when it begins; and before end where no other schedule follows. 0 to 86400. Unset: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	LeadSeconds *int32 `json:"leadSeconds,omitempty"`

	// override is what is different while the time lasts.
	// +required
	Override ScheduleOverride `json:"override,omitempty,omitzero"`
}

// ScheduleOverride is merged over the pool's spec field by field: what is not given stays as the spec has it, a list
// replaces the spec's list.
// +kubebuilder:validation:MinProperties=1
type ScheduleOverride struct {
	// partitioning is how each GPU is divided while the time lasts.
	// +optional
	Partitioning PartitioningOverride `json:"partitioning,omitempty,omitzero"`

	// overcommit is how much more than it has a shared GPU promises while the time lasts.
	// +optional
	Overcommit OvercommitOverride `json:"overcommit,omitempty,omitzero"`
}

// PartitioningOverride replaces fields of a pool's partitioning.
// +kubebuilder:validation:MinProperties=1
type PartitioningOverride struct {
	// type is None or MIG. Unset: as in spec.
	// +optional
	Type PartitioningType `json:"type,omitempty"`

	// mig replaces fields of partitioning.mig. Where the type becomes None, all of it is left out.
	// +optional
	MIG MIGOverride `json:"mig,omitempty,omitzero"`
}

// MIGOverride replaces fields of a pool's partitioning.mig.
// +kubebuilder:validation:MinProperties=1
type MIGOverride struct {
	// strategy is Dynamic or Static. Unset: as in spec.
	// +optional
	Strategy MIGStrategy `json:"strategy,omitempty"`

	// layouts replace all layouts of spec. Up to 16. Unset: as in spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Layouts []MIGLayout `json:"layouts,omitempty"`

	// keepIdleSeconds is how long an idle instance is kept, 0 to 3600. Unset: as in spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	KeepIdleSeconds *int32 `json:"keepIdleSeconds,omitempty"`
}

// OvercommitOverride replaces fields of a pool's overcommit.
// +kubebuilder:validation:MinProperties=1
type OvercommitOverride struct {
	// memoryPercent is what a GPU publishes in percent of its memory, 100 to 1000. Unset: as in spec.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	MemoryPercent int32 `json:"memoryPercent,omitempty"`

	// computePercent is what a GPU publishes in percent of its compute, 100 to 1000. Unset: as in spec.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	ComputePercent int32 `json:"computePercent,omitempty"`
}

// PoolSchedule says which of a pool's schedules is in force.
// +kubebuilder:validation:MinProperties=1
type PoolSchedule struct {
	// active is the name of the schedule in force; unset: none is, spec counts as it is written.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Active string `json:"active,omitempty"`

	// next is the name of the schedule that comes into force at nextChange; unset: none does, spec counts again.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Next string `json:"next,omitempty"`

	// nextChange is when the first nodes change to next; unset: never.
	// +optional
	NextChange *metav1.Time `json:"nextChange,omitempty"`
}
