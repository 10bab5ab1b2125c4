// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// PartitioningType says how the GPUs of a pool are divided in hardware.
// +kubebuilder:validation:Enum=None;MIG
type PartitioningType string

const (
	// PartitioningNone leaves each GPU whole.
	PartitioningNone PartitioningType = "None"
	// PartitioningMIG divides each GPU into MIG instances.
	PartitioningMIG PartitioningType = "MIG"
)

// MIGStrategy says who decides which MIG instances exist.
// +kubebuilder:validation:Enum=Dynamic;Static
type MIGStrategy string

const (
	// MIGDynamic creates an instance when a claim was given its placement and destroys it afterwards.
	MIGDynamic MIGStrategy = "Dynamic"
	// MIGStatic keeps the instances of a layout, whether they are used or not.
	MIGStatic MIGStrategy = "Static"
)

// Partitioning says how each GPU of a pool is divided in hardware.
// +kubebuilder:validation:XValidation:rule="(self.type == 'MIG') == has(self.mig)",message="mig is given exactly when type is MIG: write partitioning: {type: MIG, mig: {strategy: Dynamic}}"
// +kubebuilder:validation:MinProperties=1
type Partitioning struct {
	// type is None (GPUs stay whole) or MIG (GPUs are divided into MIG instances). Default: None.
	// +optional
	// +kubebuilder:default=None
	Type PartitioningType `json:"type,omitempty"`

	// mig says how instances come about; required when type is MIG, forbidden otherwise.
	// +optional
	MIG *MIGPartitioning `json:"mig,omitempty"`
}

// MIGPartitioning says how the MIG instances of a pool come about.
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'Static') == has(self.layouts)",message="layouts are given exactly when strategy is Static: write mig: {strategy: Static, layouts: [{name: sevenths, instances: [{profile: 1g.10gb, count: 7}]}]}"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'Static' || !has(self.keepIdleSeconds)",message="keepIdleSeconds is for strategy Dynamic: the instances of a layout always stay"
type MIGPartitioning struct {
	// strategy is Dynamic (an instance is created when the scheduler has given its placement to a claim, and destroyed
	// when the claim is gone) or Static (each GPU always has the instances of its layout). Default: Dynamic.
	// +optional
	// +kubebuilder:default=Dynamic
	Strategy MIGStrategy `json:"strategy,omitempty"`

	// layouts say which instances each GPU has; required with strategy Static, forbidden otherwise. Of the layouts whose
	// products and minors match a GPU the first in the list counts; a GPU that none matches, or whose board cannot hold
	// its layout, keeps what it has, and condition LayoutInvalid says what would fit. Up to 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Layouts []MIGLayout `json:"layouts,omitempty"`

	// keepIdleSeconds is how long an instance that nobody uses any more is kept for the next claim that is given the same
	// placement, 0 to 3600. It is destroyed at once where a claim needs its room. Unset or 0: not at all. Strategy Dynamic only.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	KeepIdleSeconds *int32 `json:"keepIdleSeconds,omitempty"`
}

// MIGLayout says into which instances some GPUs are divided.
type MIGLayout struct {
	// name is how conditions and events call the layout, 1 to 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// products are product names with * for any characters, as in gpuSelector. Up to 16 patterns of 1 to 96 characters.
	// Unset: any product.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=96
	Products []string `json:"products,omitempty"`

	// minors are device minor numbers on each node, 0 to 255. Unset: any minor.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=255
	Minors []int32 `json:"minors,omitempty"`

	// instances are how many instances of each profile a GPU has. Where on the GPU they sit is the manager's to find. Up
	// to 16 profiles.
	// +required
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Instances []MIGCount `json:"instances,omitempty"`
}

// MIGCount is how many instances of a profile a GPU has.
type MIGCount struct {
	// profile is the MIG profile's name, such as 1g.10gb; GPUNode.status.profiles lists what each board offers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z0-9.]+)*$`
	Profile string `json:"profile,omitempty"`

	// count is how many, 1 to 16. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Count int32 `json:"count,omitempty"`
}

// MIGPlacement says where on its GPU an instance is to sit.
type MIGPlacement struct {
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
}
