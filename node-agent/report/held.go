// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

const (
	maxHolders   = 8
	maxHolder    = 320
	maxInstances = 16
)

// instances are those that exist, with who holds them.
func (f Facts) instances(uuid string, list []gpu.Instance) []v1alpha1.MIGInstance {
	var out []v1alpha1.MIGInstance
	for _, i := range list[:min(len(list), maxInstances)] {
		instance := v1alpha1.MIGInstance{Start: ptr.To(int32(i.Start)), Profile: i.Profile, UUID: i.UUID}
		at := gpu.Placement{Profile: i.Profile, Start: i.Start}
		names := f.tenants(func(r checkpoint.Result) bool {
			return r.GPU == uuid && r.Placement != nil && r.Placement.GPU() == at
		})
		tenant := false
		for _, p := range f.Processes[uuid] {
			if p.GIID != i.GIID {
				continue
			}
			tenant = tenant || p.Tenant
			if !p.Tenant {
				names = append(names, p.Name)
			}
		}
		instance.HeldBy = bounded(names)
		if len(names) > 0 || tenant {
			instance.InUse = ptr.To(true)
		}
		out = append(out, instance)
	}
	return out
}

// heldBy names who uses a GPU, or an instance of it.
func (f Facts) heldBy(uuid string) []string {
	names := f.tenants(func(r checkpoint.Result) bool { return r.GPU == uuid })
	for _, p := range f.Processes[uuid] {
		if !p.Tenant {
			names = append(names, p.Name)
		}
	}
	return bounded(names)
}

// tenants are the users of the claims that have such a result.
func (f Facts) tenants(has func(checkpoint.Result) bool) []string {
	var names []string
	for _, claim := range f.Claims.Sorted() {
		if slices.ContainsFunc(claim.Results, func(r checkpoint.Result) bool { return !r.Admin && has(r) }) {
			names = append(names, claim.Users()...)
		}
	}
	return names
}

// bounded keeps within what the API takes; the last name counts those that are left out.
func bounded(names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	for i := range names {
		names[i] = shorten(names[i], maxHolder)
	}
	if more := len(names) - maxHolders; more > 0 {
		names = append(names[:maxHolders-1], fmt.Sprintf("and %d more", more+1))
	}
	return names
}
