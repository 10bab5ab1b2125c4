// SPDX-License-Identifier: Apache-2.0

package assign_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

func result(driver, node, device string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: node, Device: device}
}

func claim(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim"},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{
				{Resource: "pods", Name: "pod", UID: "7"}, {APIGroup: "batch", Resource: "jobs", Name: "job"},
			},
		},
	}
}

func TestAllocationsOn(t *testing.T) {
	shared := result(v1alpha1.DriverName, "node", "gpu-1")
	shared.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse("10Gi")}
	monitoring := result(v1alpha1.DriverName, "node", "gpu-1")
	monitoring.AdminAccess = ptr.To(true)
	base := assign.Allocation{Claim: types.NamespacedName{Namespace: "team", Name: "claim"}, Pods: []string{"pod"}, UIDs: []types.UID{"7"}}

	with := func(device string, memory *resource.Quantity) assign.Allocation {
		a := base
		a.Device, a.Memory = device, memory
		return a
	}
	tests := []struct {
		name  string
		claim *resourceapi.ResourceClaim
		want  []assign.Allocation
	}{
		{name: "a claim that is not allocated holds nothing", claim: &resourceapi.ResourceClaim{}},
		{name: "another driver's device is not ours", claim: claim(result("other.example.com", "node", "gpu-1"))},
		{name: "another node's device is not counted", claim: claim(result(v1alpha1.DriverName, "other", "gpu-1"))},
		{name: "access for monitoring holds nothing", claim: claim(monitoring)},
		{
			name:  "a share consumes its amount, a MIG instance is held whole",
			claim: claim(shared, result(v1alpha1.DriverName, "node", "gpu-2-mig-1g10gb-4")),
			want:  []assign.Allocation{with("gpu-1", ptr.To(resource.MustParse("10Gi"))), with("gpu-2-mig-1g10gb-4", nil)},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, assign.AllocationsOn("node", tc.claim)); diff != "" {
				t.Errorf("allocations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllocatedNodesNamesEachOnce(t *testing.T) {
	c := claim(
		result(v1alpha1.DriverName, "a", "gpu-0"), result(v1alpha1.DriverName, "a", "gpu-1"),
		result("other.example.com", "b", "gpu-0"), result(v1alpha1.DriverName, "c", "gpu-0"),
	)
	if diff := cmp.Diff([]string{"a", "c"}, assign.AllocatedNodes(c)); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestHeld(t *testing.T) {
	node := func(allocated ...string) assign.Node {
		n := assign.Node{GPUNode: &v1alpha1.GPUNode{
			Spec: &v1alpha1.GPUNodeSpec{GPUs: []v1alpha1.GPUDecision{{UUID: "GPU-a"}, {UUID: "GPU-lost"}}},
			Status: v1alpha1.GPUNodeStatus{GPUs: []v1alpha1.GPUStatus{
				{UUID: "GPU-a", Minor: ptr.To[int32](0)}, {UUID: "GPU-b", Minor: ptr.To[int32](10)},
			}},
		}}
		for _, device := range allocated {
			n.Allocations = append(n.Allocations, assign.Allocation{Device: device})
		}
		return n
	}
	tests := []struct {
		name string
		node assign.Node
		want map[string]bool
	}{
		{name: "without claims nothing is held", node: node(), want: map[string]bool{"GPU-a": false, "GPU-b": false, "GPU-lost": false}},
		{name: "a whole GPU is held by its minor", node: node("gpu-0"), want: map[string]bool{"GPU-a": true, "GPU-b": false, "GPU-lost": false}},
		{name: "a MIG instance holds its GPU", node: node("gpu-10-mig-1g10gb-0"), want: map[string]bool{"GPU-a": false, "GPU-b": true, "GPU-lost": false}},
		{name: "a minor that is not reported holds the lost GPU", node: node("gpu-1"), want: map[string]bool{"GPU-a": false, "GPU-b": false, "GPU-lost": true}},
		{name: "a device name of no known form holds the lost GPU", node: node("disk-0"), want: map[string]bool{"GPU-a": false, "GPU-b": false, "GPU-lost": true}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, assign.Held(tc.node)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}
