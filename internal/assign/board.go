// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"cmp"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
)

// Board is how a board of a node can be divided, as its agent reports it.
func Board(node *v1alpha1.GPUNode, product string) layout.Board {
	board := layout.Board{Product: product}
	for i := range node.Status.Profiles {
		reported := &node.Status.Profiles[i]
		if reported.Product != product || reported.MemorySlices == 0 {
			continue
		}
		profile := profileOf(reported)
		board.Profiles = append(board.Profiles, profile)
		if len(profile.Starts) > 0 {
			board.MemorySlices = max(board.MemorySlices, slices.Max(profile.Starts)+profile.MemorySlices)
		}
	}
	return board
}

func profileOf(p *v1alpha1.MIGProfile) gpu.Profile {
	profile := gpu.Profile{
		Name: p.Name, MemoryBytes: p.MemoryBytes(),
		ComputeSlices: int(p.ComputeSlices), MemorySlices: int(p.MemorySlices), Max: int(cmp.Or(p.Max, 1)),
		Decoders: int(ptr.Deref(p.Engines.Decoders, 0)), Encoders: int(ptr.Deref(p.Engines.Encoders, 0)),
		JPEG: int(ptr.Deref(p.Engines.JPEG, 0)), OFA: int(ptr.Deref(p.Engines.OFA, 0)),
	}
	for _, start := range p.Starts {
		profile.Starts = append(profile.Starts, int(start))
	}
	return profile
}

// PlacementOf is where the instance of an allocation sits; false where it is none of the GPU's instances or placements.
func PlacementOf(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, a Allocation) (gpu.Placement, bool) {
	minor := int(ptr.Deref(reported.Minor, 0))
	for _, i := range reported.Instances {
		p := gpu.Placement{Profile: i.Profile, Start: int(ptr.Deref(i.Start, 0))}
		if devices.PlacementName(minor, p) == a.Device {
			return p, true
		}
	}
	for i := range node.Status.Profiles {
		profile := &node.Status.Profiles[i]
		if profile.Product != reported.Product {
			continue
		}
		for _, start := range profile.Starts {
			p := gpu.Placement{Profile: profile.Name, Start: int(start)}
			if devices.PlacementName(minor, p) == a.Device {
				return p, true
			}
		}
	}
	return gpu.Placement{}, false
}
