// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/test/builders"
)

const h100Usable = 81152 << 20 // 79.25 GiB

func shared(edit func(*v1alpha1.GPUDecision)) devices.Offer {
	o := devices.Offer{
		GPU: gpu.GPU{UUID: "GPU-1", Product: "NVIDIA H100 80GB HBM3", MemoryBytes: h100Usable, NUMANode: -1}, Minor: 3,
		Decision: v1alpha1.GPUDecision{
			UUID: "GPU-1", Pool: "inference", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware,
			MemoryPercent: 150, ComputePercent: 200, MaxTenants: 8,
		},
		DriverVersion: "580.159.04",
	}
	if edit != nil {
		edit(&o.Decision)
	}
	return o
}

func TestWholeGPU(t *testing.T) {
	cases := []struct {
		name   string
		edit   func(*v1alpha1.GPUDecision)
		shared bool
		memory string
		limit  string // per claim
		share  string // default
		least  string // 704Mi unless said
	}{
		{name: "150 % publishes half as much again, one claim never more than the GPU has",
			shared: true, memory: "121728Mi", limit: "81152Mi", share: "81152Mi"},
		{name: "the pool's default memory is a share's",
			edit:   func(d *v1alpha1.GPUDecision) { d.DefaultMemory = ptr.To(resource.MustParse("8Gi")) },
			shared: true, memory: "121728Mi", limit: "81152Mi", share: "8Gi"},
		{name: "a default above the GPU is the whole GPU",
			edit:   func(d *v1alpha1.GPUDecision) { d.DefaultMemory = ptr.To(resource.MustParse("100Gi")) },
			shared: true, memory: "121728Mi", limit: "81152Mi", share: "81152Mi"},
		{name: "a default below what a process needs is raised to it",
			edit:   func(d *v1alpha1.GPUDecision) { d.DefaultMemory = ptr.To(resource.MustParse("512Mi")) },
			shared: true, memory: "121728Mi", limit: "81152Mi", share: "704Mi"},
		{name: "where nothing is held inside the processes any amount will do",
			edit: func(d *v1alpha1.GPUDecision) {
				d.Sharing, d.DefaultMemory = v1alpha1.SharingTimeSlicing, ptr.To(resource.MustParse("512Mi"))
			},
			shared: true, memory: "121728Mi", limit: "81152Mi", share: "512Mi", least: "1Mi"},
		{name: "an exclusive GPU is one claim's",
			edit: func(d *v1alpha1.GPUDecision) {
				d.Sharing, d.MemoryPercent = v1alpha1.SharingExclusive, 100
			},
			memory: "81152Mi"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			published, set := devices.Build(shared(tc.edit))
			if len(published) != 1 || set != nil {
				t.Fatalf("got %d devices and counters %v, want one device and none", len(published), set)
			}
			d := published[0]
			if d.Name != "gpu-3" {
				t.Errorf("name %q, want gpu-3", d.Name)
			}
			if got := ptr.Deref(d.AllowMultipleAllocations, false); got != tc.shared {
				t.Errorf("allowMultipleAllocations %v, want %v", got, tc.shared)
			}
			memory := d.Capacity[v1alpha1.CapacityMemory]
			want := resource.MustParse(tc.memory)
			if memory.Value.Cmp(want) != 0 {
				t.Errorf("memory %s, want %s", memory.Value.String(), tc.memory)
			}
			if !tc.shared {
				if memory.RequestPolicy != nil {
					t.Errorf("an unshared device has a request policy: the API server refuses it")
				}
				return
			}
			limit, share := resource.MustParse(tc.limit), resource.MustParse(tc.share)
			if memory.RequestPolicy.ValidRange.Max.Cmp(limit) != 0 {
				t.Errorf("one claim may have %s, want %s", memory.RequestPolicy.ValidRange.Max, tc.limit)
			}
			least := resource.MustParse(orElse(tc.least, "704Mi"))
			if memory.RequestPolicy.ValidRange.Min.Cmp(least) != 0 {
				t.Errorf("a claim is given at least %s, want %s", memory.RequestPolicy.ValidRange.Min, &least)
			}
			if memory.RequestPolicy.Default.Cmp(share) != 0 {
				t.Errorf("a claim without an amount has %s, want %s", memory.RequestPolicy.Default, tc.share)
			}
		})
	}
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func TestPublishedMemoryIsNeverAboveTheRatioNorBelowTheGPU(t *testing.T) {
	for percent := int32(100); percent <= 1000; percent++ {
		got := devices.PublishedMemory(h100Usable+12345, percent)
		if got*100 > (h100Usable+12345)*int64(percent) {
			t.Fatalf("%d %%: %d bytes is above the ratio", percent, got)
		}
		if got < h100Usable {
			t.Fatalf("%d %%: %d bytes is below the physical %d", percent, got, h100Usable)
		}
	}
}

// A tenant's selector that reads an attribute some device lacks fails on every node.
func TestEveryDeviceCarriesEveryAttribute(t *testing.T) {
	offers := []devices.Offer{shared(nil), {GPU: builders.Boards(t)["a100-80gb"], Decision: migDecision()}, {Decision: migDecision()}}
	var want map[resourceapi.QualifiedName]bool
	for _, o := range offers {
		published, _ := devices.Build(o)
		for _, d := range published {
			got := map[resourceapi.QualifiedName]bool{}
			for name := range d.Attributes {
				got[name] = true
			}
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: attributes (-want +got):\n%s", d.Name, diff)
			}
		}
	}
}

func TestATaintNamesItsReason(t *testing.T) {
	published, _ := devices.Build(shared(func(d *v1alpha1.GPUDecision) { d.Taint = v1alpha1.TaintPoolDeleted }))
	want := []resourceapi.DeviceTaint{{Key: devices.TaintKey, Value: "PoolDeleted", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	if diff := cmp.Diff(want, published[0].Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

func TestEveryTaintedDeviceSaysThatItIsDraining(t *testing.T) {
	for _, taint := range []v1alpha1.TaintReason{"", v1alpha1.TaintPoolDeleted, v1alpha1.TaintPoolChanged, v1alpha1.TaintNotSelected, v1alpha1.ReasonGPUMissing} {
		whole, divided := shared(nil), devices.Offer{GPU: builders.Boards(t)["a100-80gb"], Decision: migDecision()}
		for _, o := range []devices.Offer{whole, divided} {
			o.Decision.Taint = taint
			published, _ := devices.Build(o)
			for _, d := range published {
				draining := ptr.Deref(d.Attributes[v1alpha1.AttributeDraining].BoolValue, false)
				if want := taint != ""; draining != want || len(d.Taints) > 0 != want {
					t.Errorf("%s, taint %q: draining is %v, want %v; its taints are %v", d.Name, taint, draining, want, d.Taints)
				}
			}
		}
	}
}

func TestAttributesFitTheAPI(t *testing.T) {
	o := shared(nil)
	o.GPU.Product = strings.Repeat("N", 100)
	published, _ := devices.Build(o)
	if got := len(*published[0].Attributes[v1alpha1.AttributeProduct].StringValue); got != 64 {
		t.Errorf("a long product name is published with %d characters, want 64", got)
	}
}

func TestMinor(t *testing.T) {
	cases := []struct {
		name  string
		minor int
		ok    bool
	}{
		{"gpu-0", 0, true},
		{"gpu-12", 12, true},
		{"gpu-7-mig-1g10gb-6", 7, true},
		{"gpu-7-mig-1g10gbpme-0", 7, true},
		{"gpu-", 0, false},
		{"gpu-x", 0, false},
		{"gpu--1", 0, false},
		{"nic-0", 0, false},
	}
	for _, tc := range cases {
		if minor, ok := devices.Minor(tc.name); ok != tc.ok || ok && minor != tc.minor {
			t.Errorf("Minor(%q) = %d, %v, want %d, %v", tc.name, minor, ok, tc.minor, tc.ok)
		}
	}
}
