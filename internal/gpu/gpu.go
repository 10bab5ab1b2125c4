// SPDX-License-Identifier: Apache-2.0

// Package gpu holds the facts about a node's GPUs as plain values: what the NVML door reads and what every decision
// about devices, placements and shares is made from.
package gpu

import "slices"

// MIGMode is what NVML says of a GPU's MIG mode.
type MIGMode string

const (
	// MIGEnabled: instances can be created.
	MIGEnabled MIGMode = "Enabled"
	// MIGDisabled: the GPU is used whole.
	MIGDisabled MIGMode = "Disabled"
	// MIGUnsupported: the board or its driver has no MIG.
	MIGUnsupported MIGMode = "Unsupported"
)

// Licence is what the driver says of a virtual GPU's licence.
type Licence string

const (
	// Licensed: the virtual GPU runs at full speed.
	Licensed Licence = "Licensed"
	// Unlicensed: the driver slows the virtual GPU down.
	Unlicensed Licence = "Unlicensed"
	// LicenceUnknown: the driver does not say.
	LicenceUnknown Licence = "Unknown"
)

// Node is one look at all GPUs of a node.
type Node struct {
	// DriverVersion is the version of NVIDIA's driver, such as 580.159.04.
	DriverVersion string
	// GPUs are ordered by minor.
	GPUs []GPU
}

// GPU is one physical GPU. Its identity is the UUID: index and minor can change at a reboot.
type GPU struct {
	// UUID is NVML's, GPU-xxxxxxxx-....
	UUID string
	// Minor is N of /dev/nvidiaN, 0 to 255.
	Minor int
	// Product is the name as NVML gives it.
	Product string
	// Architecture is Ampere, Hopper, Blackwell, ...
	Architecture string
	// PCIBusID is the PCI address in sysfs form, 0000:0a:00.0.
	PCIBusID string
	// PCIeRoot is the PCIe root complex, pci0000:00; "" where sysfs does not say.
	PCIeRoot string
	// NUMANode is -1 where unknown.
	NUMANode int
	// MemoryBytes is what CUDA can use: NVML's v2 total less what the driver reserves.
	MemoryBytes int64
	// Licence is a virtual GPU's, which a hypervisor makes of a part of a real one; "" for a physical GPU.
	Licence Licence
	// MIGMode is the current mode.
	MIGMode MIGMode
	// MIGModePending is true where MIG mode is off and comes on with the GPU's next reset.
	MIGModePending bool
	// MIGModeSwitchable is true where the mode can be changed without a GPU reset (Hopper and newer).
	MIGModeSwitchable bool
	// MemorySlices is how many memory slices the board divides into under MIG; 0 without MIG.
	MemorySlices int
	// ComputeSlices is how many compute slices the board divides into under MIG; 0 without MIG.
	ComputeSlices int
	// Profiles are the GPU instance profiles the board offers, whether MIG mode is on or not.
	Profiles []Profile
	// Instances are the GPU instances that exist, ordered by start.
	Instances []Instance
}

// Profile is a MIG GPU-instance profile of a board.
type Profile struct {
	// Name is 1g.10gb, 1g.10gb+me, ... It is for people; ID is what NVML is asked with.
	Name string
	// ID is the NVML_GPU_INSTANCE_PROFILE_* constant.
	ID int
	// MemoryBytes is what one instance has.
	MemoryBytes int64
	// ComputeSlices is the g of the name.
	ComputeSlices int
	// MemorySlices is how many memory slices an instance takes.
	MemorySlices int
	// Starts are the legal first memory slices, ascending.
	Starts []int
	// Max is the most instances of this profile on one GPU.
	Max int
	// Decoders, Encoders, JPEG and OFA are the media engines of one instance.
	Decoders, Encoders, JPEG, OFA int
}

// Instance is one MIG GPU instance with its compute instance.
type Instance struct {
	// Profile is the profile's name; Start and Size are its memory slices.
	Profile     string
	Start, Size int
	// GIID is the GPU instance's id, CIID the compute instance's; CIID is -1 where there is none.
	GIID, CIID int
	// UUID is the MIG device's, MIG-....; "" where there is no compute instance.
	UUID string
}

// Placement says where on its GPU a MIG instance sits. It is an instance's identity while it is wanted; the ids that
// NVML gives are only known once it exists.
type Placement struct {
	Profile string
	Start   int
}

// Profile finds a profile by name.
func (g *GPU) Profile(name string) (Profile, bool) {
	i := slices.IndexFunc(g.Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return g.Profiles[i], true
}

// ByUUID finds a GPU by its UUID; nil where the node has none such.
func (n *Node) ByUUID(uuid string) *GPU {
	i := slices.IndexFunc(n.GPUs, func(g GPU) bool { return g.UUID == uuid })
	if i < 0 {
		return nil
	}
	return &n.GPUs[i]
}

// Compute is a profile's share of a whole GPU of the board in percent, rounded down.
func (p Profile) Compute(boardSlices int) int {
	if boardSlices <= 0 {
		return 0
	}
	return 100 * p.ComputeSlices / boardSlices
}
