// SPDX-License-Identifier: Apache-2.0

package builders

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Product is what the GPUs of a GPUNode are.
const Product = "NVIDIA H100 80GB HBM3"

// GPUNode builds a GPUNode as its agent reports it.
type GPUNode struct{ node v1alpha1.GPUNode }

// MakeGPUNode starts a node of a number of H100, decided for no pool and published for none.
func MakeGPUNode(name string, gpus int) *GPUNode {
	n := &GPUNode{node: v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Status: v1alpha1.GPUNodeStatus{
			ObservedGeneration: 1,
			Profiles: []v1alpha1.MIGProfile{
				{Product: Product, Name: "1g.10gb", Memory: ptr.To(resource.MustParse("9728Mi")), Compute: 14, ComputeSlices: 1, MemorySlices: 1, Max: 7, Starts: []int32{0, 1, 2, 3, 4, 5, 6}},
				{Product: Product, Name: "3g.40gb", Memory: ptr.To(resource.MustParse("39936Mi")), Compute: 42, ComputeSlices: 3, MemorySlices: 4, Max: 2, Starts: []int32{0, 4}},
			},
		},
	}}
	for i := range gpus {
		n.node.Status.GPUs = append(n.node.Status.GPUs, v1alpha1.GPUStatus{
			UUID: UUID(name, i), Minor: ptr.To(int32(i)), Product: Product, Architecture: "Hopper", Memory: ptr.To(resource.MustParse("81152Mi")),
		})
	}
	return n
}

// UUID is the UUID of a GPU of a node that MakeGPUNode starts.
func UUID(node string, minor int) string { return fmt.Sprintf("GPU-%s-%d", node, minor) }

// Decided sets the decisions, and has the agent publish them.
func (n *GPUNode) Decided(decisions ...v1alpha1.GPUDecision) *GPUNode {
	n.node.Spec = &v1alpha1.GPUNodeSpec{GPUs: decisions}
	Publish(&n.node)
	return n
}

// Publish makes a GPUNode's status what an agent says that has applied every decision.
func Publish(node *v1alpha1.GPUNode) {
	node.Status.ObservedGeneration = node.Generation
	for i := range node.Status.GPUs {
		gpu := &node.Status.GPUs[i]
		gpu.Published, gpu.Reason = v1alpha1.PublishedForm{}, v1alpha1.ReasonNoPool
		j := slices.IndexFunc(node.Decisions(), func(d v1alpha1.GPUDecision) bool { return d.UUID == gpu.UUID })
		if j >= 0 {
			d := node.Decisions()[j]
			gpu.Published = v1alpha1.PublishedForm{
				Pool: d.Pool, Partitioning: d.Partitioning, Strategy: d.Strategy, Sharing: d.Sharing, Taint: d.Taint,
			}
			gpu.Reason = v1alpha1.ReasonPublished
			divide(gpu, d)
		}
	}
}

// divide makes the instances of a layout.
func divide(gpu *v1alpha1.GPUStatus, d v1alpha1.GPUDecision) {
	switch {
	case d.Strategy != v1alpha1.MIGStatic:
		return
	case len(d.Instances) == 0:
		gpu.Published, gpu.Reason = v1alpha1.PublishedForm{}, v1alpha1.ReasonLayoutUndecided
		return
	}
	gpu.Instances = nil
	for _, i := range d.Instances {
		gpu.Instances = append(gpu.Instances, v1alpha1.MIGInstance{
			Start: i.Start, Profile: i.Profile, UUID: fmt.Sprintf("MIG-%s-%d", gpu.UUID, *i.Start),
		})
	}
}

// Obj is a copy of what has been built.
func (n *GPUNode) Obj() *v1alpha1.GPUNode { return n.node.DeepCopy() }

// NodeIn is a Node whose label puts it into a pool of tests.
func NodeIn(name, pool string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{PoolNodeLabel: pool}}}
}

// Allocated is a claim that holds one device, for a pod named like the claim.
func Allocated(name, node, device, memory string) *resourceapi.ResourceClaim {
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: v1alpha1.DriverName, Pool: node, Device: device,
	}
	if memory != "" {
		result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(memory)}
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{result},
			}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name}},
		},
	}
}
