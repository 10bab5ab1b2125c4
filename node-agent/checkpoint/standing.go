// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// MadeFile is the name of the record of instances of static layouts in the state directory.
const MadeFile = "made.json"

// Standing is a MIG instance of a static layout that is offered. Its amounts are kept, since an upgrade of the driver may
// rename or drop the profile while a claim has the instance.
type Standing struct {
	Placement
	// UUID is the MIG device's.
	UUID string `json:"uuid"`
	// MemoryBytes and Compute, in percent of the whole GPU, are what the instance has.
	MemoryBytes int64 `json:"memoryBytes"`
	Compute     int   `json:"compute"`
	// Taint says why it takes no new tenants; "" where it takes them.
	Taint v1alpha1.TaintReason `json:"taint,omitempty"`
}

// Device is the instance as it is published.
func (s Standing) Device() devices.Standing {
	return devices.Standing{
		Placement: s.Placement.GPU(), UUID: s.UUID, MemoryBytes: s.MemoryBytes, Compute: s.Compute, Taint: s.Taint,
	}
}

// At finds the offered instance at a placement; nil where there is none.
func (g *PublishedGPU) At(p gpu.Placement) *Standing {
	i := slices.IndexFunc(g.Instances, func(s Standing) bool { return s.Placement.GPU() == p })
	if i < 0 {
		return nil
	}
	return &g.Instances[i]
}

// Made is the record of the MIG instances that the agent made for static layouts, or took over because they were what a
// layout wants. It is written before an instance is made and after one is destroyed, so that what is found on a GPU can be
// told from what somebody else made. Only the active agent uses it.
type Made struct {
	Version int `json:"version"`
	// GPUs are the placements by the UUID of their GPU.
	GPUs map[string][]Placement `json:"gpus"`
}

// Has is true where the instance at a placement is the agent's.
func (m Made) Has(uuid string, p gpu.Placement) bool {
	return slices.ContainsFunc(m.GPUs[uuid], func(o Placement) bool { return o.GPU() == p })
}

// Made reads the record of instances of static layouts; before the first one is written it is empty.
func (s *Store) Made() (Made, error) {
	path := filepath.Join(s.dir, MadeFile)
	m := Made{}
	written, err := read(path, &m)
	if err != nil {
		return Made{}, err
	}
	if !written {
		return Made{Version: Version, GPUs: map[string][]Placement{}}, nil
	}
	if m.GPUs == nil {
		return Made{}, fmt.Errorf("%s: %w: it has no list of GPUs", path, ErrUnreadable)
	}
	return m, nil
}

// SaveMade replaces the record of instances of static layouts. Once it returns, the record survives a crash of the node.
func (s *Store) SaveMade(m Made) error {
	m.Version = Version
	if m.GPUs == nil {
		m.GPUs = map[string][]Placement{} // written, so that a record without the list is known to be damaged
	}
	return replace(filepath.Join(s.dir, MadeFile), m)
}
