// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// layout is a GPU with two instances, of which the larger comes first.
func layout(edit func(*v1alpha1.GPUDecision)) devices.Offer {
	return shared(func(d *v1alpha1.GPUDecision) {
		d.Partitioning, d.Strategy = v1alpha1.PartitioningMIG, v1alpha1.MIGStatic
		if edit != nil {
			edit(d)
		}
	})
}

func instances() []devices.Standing {
	return []devices.Standing{
		{Placement: gpu.Placement{Profile: "3g.40gb", Start: 0}, UUID: "MIG-a", MemoryBytes: 40 << 30, Compute: 42},
		{Placement: gpu.Placement{Profile: "1g.10gb+me", Start: 6}, UUID: "MIG-b", MemoryBytes: 9 << 30, Compute: 14, Taint: v1alpha1.TaintLayoutChanged},
	}
}

func TestStandingInstances(t *testing.T) {
	type device struct {
		Name, UUID, Profile, Taint      string
		Shared, Draining                bool
		Memory, Compute, Slots          string
		MostMemory, MostCompute, Amount string
	}
	for _, tc := range []struct {
		name string
		edit func(*v1alpha1.GPUDecision)
		want []device
	}{
		{
			name: "exclusive instances have the amounts of their profiles",
			edit: func(d *v1alpha1.GPUDecision) { d.Sharing = v1alpha1.SharingExclusive },
			want: []device{
				{Name: "gpu-3-mig-1g10gbpme-6", UUID: "MIG-b", Profile: "1g.10gb+me", Taint: "LayoutChanged", Draining: true, Memory: "9Gi", Compute: "14"},
				{Name: "gpu-3-mig-3g40gb-0", UUID: "MIG-a", Profile: "3g.40gb", Memory: "40Gi", Compute: "42"},
			},
		},
		{
			name: "shared instances are overcommitted, and one claim has at most what there is",
			edit: func(d *v1alpha1.GPUDecision) { d.DefaultCompute = ptr.To[int32](20) },
			want: []device{
				{
					Name: "gpu-3-mig-1g10gbpme-6", UUID: "MIG-b", Profile: "1g.10gb+me", Taint: "LayoutChanged", Draining: true, Shared: true,
					Memory: "13824Mi", Compute: "28", Slots: "8", MostMemory: "9Gi", MostCompute: "14", Amount: "14",
				},
				{
					Name: "gpu-3-mig-3g40gb-0", UUID: "MIG-a", Profile: "3g.40gb", Shared: true,
					Memory: "60Gi", Compute: "84", Slots: "8", MostMemory: "40Gi", MostCompute: "42", Amount: "20",
				},
			},
		},
		{
			name: "a taint of the GPU is that of every instance",
			edit: func(d *v1alpha1.GPUDecision) {
				d.Sharing, d.Taint = v1alpha1.SharingExclusive, v1alpha1.TaintExcluded
			},
			want: []device{
				{Name: "gpu-3-mig-1g10gbpme-6", UUID: "MIG-b", Profile: "1g.10gb+me", Taint: "Excluded", Draining: true, Memory: "9Gi", Compute: "14"},
				{Name: "gpu-3-mig-3g40gb-0", UUID: "MIG-a", Profile: "3g.40gb", Taint: "Excluded", Draining: true, Memory: "40Gi", Compute: "42"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			offer := layout(tc.edit)
			offer.Instances = instances()
			list, set := devices.Build(offer)
			if set != nil {
				t.Errorf("counters %v for instances that do not overlap", set)
			}
			var got []device
			for _, d := range list {
				g := device{
					Name: d.Name, UUID: ptr.Deref(d.Attributes[v1alpha1.AttributeUUID].StringValue, ""),
					Profile:  ptr.Deref(d.Attributes[v1alpha1.AttributeProfile].StringValue, ""),
					Draining: ptr.Deref(d.Attributes[v1alpha1.AttributeDraining].BoolValue, false),
					Shared:   ptr.Deref(d.AllowMultipleAllocations, false),
				}
				if len(d.Taints) > 0 {
					g.Taint = d.Taints[0].Value
				}
				memory, compute := d.Capacity[v1alpha1.CapacityMemory], d.Capacity[v1alpha1.CapacityCompute]
				g.Memory, g.Compute = memory.Value.String(), compute.Value.String()
				if g.Shared {
					slots := d.Capacity[v1alpha1.CapacitySlots]
					g.Slots, g.MostMemory = slots.Value.String(), memory.RequestPolicy.ValidRange.Max.String()
					g.MostCompute, g.Amount = compute.RequestPolicy.ValidRange.Max.String(), compute.RequestPolicy.Default.String()
				}
				got = append(got, g)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStandingInstancesHaveEveryAttribute(t *testing.T) {
	whole, _ := devices.Build(shared(nil))
	offer := layout(nil)
	offer.Instances = instances()
	list, _ := devices.Build(offer)
	for name := range whole[0].Attributes {
		for _, d := range list {
			if _, has := d.Attributes[name]; !has {
				t.Errorf("%s lacks attribute %s", d.Name, name)
			}
		}
	}
}
