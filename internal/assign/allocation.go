// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
)

// Allocation is one device that a claim was given.
type Allocation struct {
	// Claim is the claim's namespace and name.
	Claim types.NamespacedName
	// Pods are the names of the pods that the claim is reserved for, in the claim's namespace.
	Pods []string
	// UIDs are the pods', in the order of Pods.
	UIDs []types.UID
	// Device is the device's name, gpu-<minor> or gpu-<minor>-mig-<profile>-<start>.
	Device string
	// Memory is the amount consumed of a shared device; nil where the device was given whole.
	Memory *resource.Quantity
	// Compute is the compute consumed of a shared device, in percent of a whole GPU; nil where the device was given whole.
	Compute *resource.Quantity
}

// AllocatedNodes are the nodes on which a claim holds devices of Sluice. The driver names its pools of devices like the
// nodes.
func AllocatedNodes(claim *resourceapi.ResourceClaim) []string {
	var nodes []string
	for _, result := range results(claim) {
		if !slices.Contains(nodes, result.Pool) {
			nodes = append(nodes, result.Pool)
		}
	}
	return nodes
}

// AllocationsOn are the devices that a claim holds on a node.
func AllocationsOn(node string, claim *resourceapi.ResourceClaim) []Allocation {
	var allocations []Allocation
	for _, result := range results(claim) {
		if result.Pool != node {
			continue
		}
		a := Allocation{
			Claim:  types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name},
			Device: result.Device,
		}
		a.Pods, a.UIDs = reservedFor(claim)
		if memory, found := result.ConsumedCapacity[v1alpha1.CapacityMemory]; found {
			a.Memory = &memory
		}
		if compute, found := result.ConsumedCapacity[v1alpha1.CapacityCompute]; found {
			a.Compute = &compute
		}
		allocations = append(allocations, a)
	}
	return allocations
}

// results are a claim's results that hold a device of this driver: access for monitoring holds nothing.
func results(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	var own []resourceapi.DeviceRequestAllocationResult
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == v1alpha1.DriverName && !ptr.Deref(result.AdminAccess, false) {
			own = append(own, result)
		}
	}
	return own
}

func reservedFor(claim *resourceapi.ResourceClaim) (pods []string, uids []types.UID) {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			pods, uids = append(pods, consumer.Name), append(uids, consumer.UID)
		}
	}
	return pods, uids
}

// ByGPU sorts a node's allocations by the UUID of their GPU. Under "" are those whose GPU the agent does not report.
func ByGPU(node Node) map[string][]Allocation {
	uuids := make(map[int]string, len(node.GPUNode.Status.GPUs))
	for _, gpu := range node.GPUNode.Status.GPUs {
		if gpu.Minor != nil {
			uuids[int(*gpu.Minor)] = gpu.UUID
		}
	}
	byGPU := map[string][]Allocation{}
	for _, a := range node.Allocations {
		uuid := ""
		if minor, ok := devices.Minor(a.Device); ok {
			uuid = uuids[minor]
		}
		byGPU[uuid] = append(byGPU[uuid], a)
	}
	return byGPU
}

// Held are the GPUs of a node that claims hold, by UUID. An allocation whose GPU the agent does not report may be on any
// of the GPUs that are missing from the report, so it holds all of them.
func Held(node Node) map[string]bool {
	byGPU := ByGPU(node)
	held := map[string]bool{}
	reported := map[string]bool{}
	for _, gpu := range node.GPUNode.Status.GPUs {
		reported[gpu.UUID] = true
		held[gpu.UUID] = len(byGPU[gpu.UUID]) > 0
	}
	for _, decision := range node.GPUNode.Decisions() {
		if !reported[decision.UUID] {
			held[decision.UUID] = len(byGPU[""]) > 0
		}
	}
	return held
}
