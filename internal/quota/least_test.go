// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/internal/request"
)

func catalog() Catalog {
	return Catalog{Foreign: []string{"taken.sluice.dev"}, Pools: []request.Pool{
		{Name: "soft", Form: request.Shared, LeastMemory: 704 * mebi, GPUs: []request.GPU{{Memory: 40 * gi}, {Memory: 80 * gi}}},
		{Name: "small", Form: request.Shared, DefaultMemory: 8 * gi, DefaultCompute: 10, GPUs: []request.GPU{{Memory: 80 * gi}}},
		{Name: "whole", Form: request.Exclusive, GPUs: []request.GPU{{Memory: 40 * gi}, {Memory: 80 * gi}}},
		{Name: "taken", Form: request.Shared},
		{Name: "mig", Form: request.MIG, Profiles: []request.Profile{
			{Name: "1g.10gb", Memory: 10 * gi, Compute: 14}, {Name: "1g.10gb", Memory: 9 * gi, Compute: 14}, {Name: "2g.20gb", Memory: 20 * gi, Compute: 28},
		}},
	}}
}

// asks is a request for count devices of a class, with amounts.
func asks(class string, count int64, pairs ...string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	if len(pairs) > 0 {
		exactly.Capacity = needs(pairs...)
	}
	return resourceapi.DeviceRequest{Name: "r", Exactly: exactly}
}

func needs(pairs ...string) *resourceapi.CapacityRequirements {
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	for pair := range slices.Chunk(pairs, 2) {
		requests[resourceapi.QualifiedName(pair[0])] = resource.MustParse(pair[1])
	}
	return &resourceapi.CapacityRequirements{Requests: requests}
}

func firstOf(classes ...string) resourceapi.DeviceRequest {
	r := resourceapi.DeviceRequest{Name: "r"}
	for _, class := range classes {
		r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{Name: "s", DeviceClassName: class, Count: 1})
	}
	return r
}

func TestLeastOf(t *testing.T) {
	all := asks("soft.sluice.dev", 0, "memory", "1Gi")
	all.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	admin := asks("whole.sluice.dev", 1)
	admin.Exactly.AdminAccess = ptr.To(true)
	tests := []struct {
		name     string
		requests []resourceapi.DeviceRequest
		pools    []string
		want     Amounts
	}{
		{name: "a share costs what it asks for", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 1, "memory", "10Gi", "compute", "30")}, want: amounts("gpus", "1", "memory", "10Gi", "compute", "30")},
		{name: "amounts with the driver's name are the same", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 1, "gpu.sluice.dev/memory", "10Gi")}, want: amounts("gpus", "1", "memory", "10Gi", "compute", "0")},
		{name: "a share is rounded up to what the pool gives at least", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 1, "memory", "1")}, want: amounts("gpus", "1", "memory", "704Mi", "compute", "0")},
		{name: "a share without an amount costs the smallest GPU", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 1)}, want: amounts("gpus", "1", "memory", "40Gi", "compute", "0")},
		{name: "a share without an amount costs the pool's default", requests: []resourceapi.DeviceRequest{asks("small.sluice.dev", 1)}, want: amounts("gpus", "1", "memory", "8Gi", "compute", "10")},
		{name: "a count costs each", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 3, "memory", "10Gi", "compute", "30")}, want: amounts("gpus", "3", "memory", "30Gi", "compute", "90")},
		{name: "All costs one at least", requests: []resourceapi.DeviceRequest{all}, want: amounts("gpus", "1", "memory", "1Gi", "compute", "0")},
		{name: "several requests add up", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 1, "memory", "1Gi"), asks("mig-2g.20gb.sluice.dev", 1)}, want: amounts("gpus", "1", "memory", "21Gi", "compute", "28", "mig/2g.20gb", "1")},
		{name: "an exclusive GPU costs the smallest", requests: []resourceapi.DeviceRequest{asks("whole.sluice.dev", 1)}, want: amounts("gpus", "1", "memory", "40Gi", "compute", "100")},
		{name: "an exclusive GPU of some size costs the smallest that has it", requests: []resourceapi.DeviceRequest{asks("gpu.sluice.dev", 1, "memory", "41Gi")}, want: amounts("gpus", "1", "memory", "80Gi", "compute", "100")},
		{name: "a MIG instance costs the smallest of its name", requests: []resourceapi.DeviceRequest{asks("mig-1g.10gb.sluice.dev", 2)}, want: amounts("mig/1g.10gb", "2", "memory", "18Gi", "compute", "28")},
		{name: "a profile that no board offers yet costs one instance", requests: []resourceapi.DeviceRequest{asks("mig-7g.80gb.sluice.dev", 1)}, want: amounts("mig/7g.80gb", "1")},
		{name: "alternatives cost what is common to all", requests: []resourceapi.DeviceRequest{firstOf("mig-1g.10gb.sluice.dev", "mig-2g.20gb.sluice.dev")}, want: amounts("memory", "9Gi", "compute", "14")},
		{name: "an alternative of somebody else may cost nothing", requests: []resourceapi.DeviceRequest{firstOf("soft.sluice.dev", "their.class")}, want: Amounts{}},
		{name: "a class of somebody else may cost nothing", requests: []resourceapi.DeviceRequest{asks("their.class", 1)}, want: Amounts{}},
		{name: "somebody else's class with a pool's name may cost nothing", requests: []resourceapi.DeviceRequest{asks("taken.sluice.dev", 1, "memory", "1Gi")}, want: Amounts{}},
		{name: "access for monitoring costs nothing", requests: []resourceapi.DeviceRequest{admin}, want: Amounts{}},
		{name: "a quota of other pools is not concerned", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 1)}, pools: []string{"whole"}, want: Amounts{}},
		{name: "a quota of the pool is concerned", requests: []resourceapi.DeviceRequest{asks("soft.sluice.dev", 1)}, pools: []string{"soft"}, want: amounts("gpus", "1", "memory", "40Gi", "compute", "0")},
		{name: "an unpublished profile may be of another pool", requests: []resourceapi.DeviceRequest{asks("mig-7g.80gb.sluice.dev", 1)}, pools: []string{"mig"}, want: Amounts{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := catalog().LeastOf(&resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: tc.requests}}).In(tc.pools)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("least cost (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLeastOfExtended(t *testing.T) {
	limits := func(pairs ...string) corev1.Container {
		list := corev1.ResourceList{}
		for pair := range slices.Chunk(pairs, 2) {
			list[corev1.ResourceName(pair[0])] = resource.MustParse(pair[1])
		}
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: list}}
	}
	tests := []struct {
		name string
		pod  corev1.PodSpec
		want Amounts
	}{
		{name: "a pod without GPUs costs nothing", pod: corev1.PodSpec{Containers: []corev1.Container{limits("cpu", "1", "nvidia.com/gpumem", "3")}}, want: Amounts{}},
		{name: "whole GPUs of all containers add up", pod: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1"), limits("nvidia.com/gpu", "2")}}, want: amounts("gpus", "3", "memory", "120Gi", "compute", "300")},
		{name: "a MIG instance by name", pod: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/mig-2g.20gb", "1")}}, want: amounts("mig/2g.20gb", "1", "memory", "20Gi", "compute", "28")},
		{name: "a class by its implicit name", pod: corev1.PodSpec{Containers: []corev1.Container{limits("deviceclass.resource.kubernetes.io/mig-2g.20gb.sluice.dev", "1")}}, want: amounts("mig/2g.20gb", "1", "memory", "20Gi", "compute", "28")},
		{name: "an init container reuses", pod: corev1.PodSpec{InitContainers: []corev1.Container{limits("nvidia.com/gpu", "1")}, Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}}, want: amounts("gpus", "1", "memory", "40Gi", "compute", "100")},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, catalog().LeastOfExtended(&tc.pod).In(nil)); diff != "" {
				t.Errorf("least cost (-want +got):\n%s", diff)
			}
		})
	}
}
