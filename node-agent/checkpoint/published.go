// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// Published is the record of what the node offers. It is written before the ResourceSlices are, so that a claim on an
// offered device can always be traced to a UUID.
type Published struct {
	Version int `json:"version"`
	// GPUs are in the order of publication, which is the order in which the scheduler fills them.
	GPUs []PublishedGPU `json:"gpus,omitempty"`
}

// PublishedGPU is one GPU that is offered.
type PublishedGPU struct {
	// Minor is the number in the names of its devices.
	Minor int `json:"minor"`
	// Form is the decision that was followed, which can be older than the one in force.
	Form v1alpha1.GPUDecision `json:"form"`
	// Facts are what the hardware was when it was last seen.
	Facts Facts `json:"facts"`
	// Instances are the MIG instances that are offered, where the form is static.
	Instances []Standing `json:"instances,omitempty"`
	// Health is the state that the GPU is offered in, Suspect or Lost; "" where it is well. HealthReason is why.
	Health       v1alpha1.HealthState `json:"health,omitempty"`
	HealthReason string               `json:"healthReason,omitempty"`
	// MemoryLimits is what holds the memory limits of its shares; "" before anybody has looked.
	MemoryLimits v1alpha1.MemoryLimits `json:"memoryLimits,omitempty"`
}

// Facts are what stays true of a GPU while it is away: enough to go on publishing it.
type Facts struct {
	UUID              string    `json:"uuid"`
	Minor             int       `json:"minor"`
	Product           string    `json:"product"`
	Architecture      string    `json:"architecture"`
	PCIBusID          string    `json:"pciBusID"`
	PCIeRoot          string    `json:"pcieRoot"`
	NUMANode          int       `json:"numaNode"`
	MemoryBytes       int64     `json:"memoryBytes"`
	MIGModeSwitchable bool      `json:"migModeSwitchable"`
	MemorySlices      int       `json:"memorySlices"`
	ComputeSlices     int       `json:"computeSlices"`
	DriverVersion     string    `json:"driverVersion"`
	Profiles          []Profile `json:"profiles,omitempty"`
}

// Profile is a MIG profile of the board.
type Profile struct {
	Name          string `json:"name"`
	ID            int    `json:"id"`
	MemoryBytes   int64  `json:"memoryBytes"`
	ComputeSlices int    `json:"computeSlices"`
	MemorySlices  int    `json:"memorySlices"`
	Starts        []int  `json:"starts"`
	Max           int    `json:"max"`
	Decoders      int    `json:"decoders,omitempty"`
	Encoders      int    `json:"encoders,omitempty"`
	JPEG          int    `json:"jpeg,omitempty"`
	OFA           int    `json:"ofa,omitempty"`
}

// ByUUID finds a published GPU; nil where it is not offered.
func (p *Published) ByUUID(uuid string) *PublishedGPU {
	i := slices.IndexFunc(p.GPUs, func(g PublishedGPU) bool { return g.Facts.UUID == uuid })
	if i < 0 {
		return nil
	}
	return &p.GPUs[i]
}

// ByMinor finds the GPU that the number in a device name means; nil where none is offered under it.
func (p *Published) ByMinor(minor int) *PublishedGPU {
	i := slices.IndexFunc(p.GPUs, func(g PublishedGPU) bool { return g.Minor == minor })
	if i < 0 {
		return nil
	}
	return &p.GPUs[i]
}

// FactsOf keeps what stays true of a GPU.
func FactsOf(g gpu.GPU, driverVersion string) Facts {
	f := Facts{
		UUID: g.UUID, Minor: g.Minor, Product: g.Product, Architecture: g.Architecture,
		PCIBusID: g.PCIBusID, PCIeRoot: g.PCIeRoot, NUMANode: g.NUMANode,
		MemoryBytes: g.MemoryBytes, MIGModeSwitchable: g.MIGModeSwitchable,
		MemorySlices: g.MemorySlices, ComputeSlices: g.ComputeSlices, DriverVersion: driverVersion,
	}
	for _, p := range g.Profiles {
		f.Profiles = append(f.Profiles, Profile(p))
	}
	return f
}

// GPU is the GPU as it was last seen, without what changes: MIG mode and instances.
func (f Facts) GPU() gpu.GPU {
	g := gpu.GPU{
		UUID: f.UUID, Minor: f.Minor, Product: f.Product, Architecture: f.Architecture,
		PCIBusID: f.PCIBusID, PCIeRoot: f.PCIeRoot, NUMANode: f.NUMANode,
		MemoryBytes: f.MemoryBytes, MIGModeSwitchable: f.MIGModeSwitchable,
		MemorySlices: f.MemorySlices, ComputeSlices: f.ComputeSlices,
	}
	for _, p := range f.Profiles {
		g.Profiles = append(g.Profiles, gpu.Profile(p))
	}
	return g
}
