// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

func record(gpus int, change ...func(*v1alpha1.GPUDecision)) checkpoint.Published {
	var p checkpoint.Published
	for i := range gpus {
		g := seen(func(g *gpu.GPU) { g.UUID, g.Minor = fmt.Sprintf("GPU-%d", i), i })
		p.GPUs = append(p.GPUs, checkpoint.PublishedGPU{Minor: i, Form: decision(change...), Facts: checkpoint.FactsOf(g, "580")})
	}
	return p
}

// stored is what the API server makes of slices.
func stored(list []resourceslice.Slice) []resourceapi.ResourceSlice {
	var out []resourceapi.ResourceSlice
	for i, s := range list {
		out = append(out, resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x-gpu.sluice.dev-node-abcde", i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: v1alpha1.DriverName, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: resourceapi.ResourcePool{Name: "node", Generation: 3, ResourceSliceCount: int64(len(list))},
			},
		})
	}
	return out
}

func TestSlicesStayWithinTheBoundsOfTheAPI(t *testing.T) {
	list := publish.Slices(record(20, mig))
	sets, deviceSlices := 0, 0
	for i, s := range list {
		if len(s.SharedCounters) > 0 && len(s.Devices) > 0 {
			t.Errorf("slice %d has both counters and devices", i)
		}
		if len(s.SharedCounters) > 8 || len(s.Devices) > 64 {
			t.Errorf("slice %d has %d counter sets and %d devices", i, len(s.SharedCounters), len(s.Devices))
		}
		sets += len(s.SharedCounters)
		if len(s.Devices) > 0 {
			deviceSlices++
		}
	}
	if sets != 20 || deviceSlices != 20 {
		t.Errorf("%d counter sets and %d slices of devices, want 20 and 20", sets, deviceSlices)
	}
}

func TestCounterSlicesDoNotDependOnTheOrder(t *testing.T) {
	forward := record(10, mig)
	backward := checkpoint.Published{}
	for i := range forward.GPUs {
		backward.GPUs = append(backward.GPUs, forward.GPUs[len(forward.GPUs)-1-i])
	}
	a, b := publish.Slices(forward), publish.Slices(backward)
	for i := range 2 {
		if diff := cmp.Diff(a[i].SharedCounters, b[i].SharedCounters); diff != "" {
			t.Errorf("counter slice %d (-forward +backward):\n%s", i, diff)
		}
	}
}

func TestSettled(t *testing.T) {
	want := publish.Slices(record(2, mig))
	for _, tc := range []struct {
		name   string
		change func([]resourceapi.ResourceSlice) []resourceapi.ResourceSlice
		want   bool
	}{
		{name: "what is stored as wanted is settled", want: true},
		{name: "a taint's time does not matter", want: true, change: func(s []resourceapi.ResourceSlice) []resourceapi.ResourceSlice { return s }},
		{name: "a missing slice is not settled", change: func(s []resourceapi.ResourceSlice) []resourceapi.ResourceSlice { return s[1:] }},
		{name: "an old generation among new ones is not settled", change: func(s []resourceapi.ResourceSlice) []resourceapi.ResourceSlice {
			s[1].Spec.Pool.Generation = 2
			return s
		}},
		{name: "another order is not settled", change: func(s []resourceapi.ResourceSlice) []resourceapi.ResourceSlice {
			s[1].Name, s[2].Name = s[2].Name, s[1].Name
			return s
		}},
		{name: "other content is not settled", change: func(s []resourceapi.ResourceSlice) []resourceapi.ResourceSlice {
			s[2].Spec.Devices = nil
			return s
		}},
		{name: "other counters are not settled", change: func(s []resourceapi.ResourceSlice) []resourceapi.ResourceSlice {
			s[0].Spec.SharedCounters = s[0].Spec.SharedCounters[:1]
			return s
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			actual := stored(want)
			if tc.change != nil {
				actual = tc.change(actual)
			}
			if got := publish.Settled(want, actual); got != tc.want {
				t.Errorf("Settled() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPublishedSaysWhatTheSlicesSay(t *testing.T) {
	p := record(3)
	mig(&p.GPUs[1].Form)
	p.GPUs[1].Form.Taint = v1alpha1.TaintPoolDeleted
	exclusive(&p.GPUs[2].Form)
	p.GPUs[2].Form.Taint = v1alpha1.ReasonGPUMissing
	got := publish.Published(stored(publish.Slices(p)))
	want := map[string]v1alpha1.PublishedForm{
		"GPU-0": {Pool: "shared", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware},
		"GPU-1": {
			Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive, Taint: v1alpha1.TaintPoolDeleted,
		},
		"GPU-2": {Pool: "exclusive", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingExclusive},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestForeign(t *testing.T) {
	slice := func(driver, attribute string) resourceapi.ResourceSlice {
		return resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, Devices: []resourceapi.Device{{
			Name: "d", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"id": {StringValue: &attribute}},
		}}}}
	}
	for _, tc := range []struct {
		name        string
		allocatable corev1.ResourceList
		slices      []resourceapi.ResourceSlice
		want        string
	}{
		{name: "our own slices are not foreign", slices: []resourceapi.ResourceSlice{slice(v1alpha1.DriverName, uuid)}},
		{name: "a driver of other devices is not foreign", slices: []resourceapi.ResourceSlice{slice("nic.example.com", "eth0")}},
		{name: "a driver with one of our GPUs is foreign", slices: []resourceapi.ResourceSlice{slice("dra.example.com", uuid)}, want: "DRA driver dra.example.com"},
		{name: "NVIDIA's driver is foreign whatever it publishes", slices: []resourceapi.ResourceSlice{slice("gpu.nvidia.com", "?")}, want: "DRA driver gpu.nvidia.com"},
		{
			name: "a device plugin with GPUs is foreign", allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")},
			want: "a device plugin (the Node has allocatable nvidia.com/gpu)",
		},
		{
			name: "a device plugin with MIG instances is foreign", allocatable: corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")},
			want: "a device plugin (the Node has allocatable nvidia.com/mig-1g.10gb)",
		},
		{name: "a device plugin that has left is not foreign", allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := publish.Foreign(tc.allocatable, tc.slices, []string{uuid}); got != tc.want {
				t.Errorf("Foreign() = %q, want %q", got, tc.want)
			}
		})
	}
}
