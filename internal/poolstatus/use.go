// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

// whole is the compute of a GPU, in percent of it.
const whole = 100

// Use is what a pool has beyond what its status says: compute, in percent of one GPU, and tenants.
type Use struct {
	// Physical, Published and Allocated are what its GPUs have, offer and have given to claims.
	Physical, Published, Allocated int64
	// Tenants is how many claims have something of it.
	Tenants int

	claims map[types.NamespacedName]bool
}

// add counts a GPU that the pool holds.
func (u *Use) add(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, allocations []assign.Allocation) {
	if u.claims == nil {
		u.claims = map[types.NamespacedName]bool{}
	}
	u.Physical += whole
	for _, a := range allocations {
		u.Allocated += allocatedCompute(node, reported, a)
		u.claims[a.Claim] = true
	}
	u.Tenants = len(u.claims)
}

// offeredCompute is what a GPU, or the instances of its layout, publish.
func offeredCompute(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision) int64 {
	if assign.StrategyOf(*d) != v1alpha1.MIGStatic {
		return int64(d.ComputePercent)
	}
	var sum int64
	for _, instance := range d.Instances {
		for _, profile := range node.Status.Profiles {
			if profile.Product == reported.Product && profile.Name == instance.Profile {
				sum += int64(profile.Compute) * int64(d.ComputePercent) / whole
			}
		}
	}
	return sum
}

// allocatedCompute is what an allocation holds: its amount, the profile's compute, or the whole GPU.
func allocatedCompute(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, a assign.Allocation) int64 {
	if a.Compute != nil {
		return a.Compute.Value()
	}
	if profile := profileOf(node, reported, a); profile != nil {
		return int64(profile.Compute)
	}
	if a.Device == deviceName(reported) && a.Memory == nil {
		return whole
	}
	return 0
}
