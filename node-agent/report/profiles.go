// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// profiles are what the node's boards offer, each once, small ones first.
func profiles(outcomes []publish.Outcome) []v1alpha1.MIGProfile {
	var list []v1alpha1.MIGProfile
	for _, o := range outcomes {
		for _, p := range o.Facts.Profiles {
			list = append(list, profile(o.Facts, p))
		}
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.MIGProfile) int {
		return cmp.Or(cmp.Compare(a.Product, b.Product), a.Memory.Cmp(*b.Memory), cmp.Compare(a.Name, b.Name))
	})
	list = slices.CompactFunc(list, func(a, b v1alpha1.MIGProfile) bool { return a.Product == b.Product && a.Name == b.Name })
	return list[:min(len(list), maxProfiles)]
}

func profile(facts checkpoint.Facts, p checkpoint.Profile) v1alpha1.MIGProfile {
	out := v1alpha1.MIGProfile{
		Product: facts.Product, Name: p.Name,
		Memory:        resource.NewQuantity(p.MemoryBytes, resource.BinarySI),
		Compute:       int32(max(1, gpu.Profile(p).Compute(facts.ComputeSlices))),
		ComputeSlices: int32(p.ComputeSlices), MemorySlices: int32(p.MemorySlices), Max: int32(p.Max),
		Engines: engines(p),
	}
	for _, start := range p.Starts {
		out.Starts = append(out.Starts, int32(start))
	}
	return out
}

// engines leaves out those of which there are none.
func engines(p checkpoint.Profile) v1alpha1.MediaEngines {
	number := func(n int) *int32 {
		if n == 0 {
			return nil
		}
		return ptr.To(int32(n))
	}
	return v1alpha1.MediaEngines{
		Decoders: number(p.Decoders), Encoders: number(p.Encoders), JPEG: number(p.JPEG), OFA: number(p.OFA),
	}
}
