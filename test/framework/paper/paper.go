// SPDX-License-Identifier: Apache-2.0

// Package paper makes nodes that are there on paper only: a Node, a GPUNode and ResourceSlices as an agent would write
// them, without an agent, a kubelet or a GPU. Where only allocation matters, a thousand pods need no more.
package paper

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// Node describes a node of a pool, which must exist.
type Node struct {
	// Name is the Node's name.
	Name string
	// Pool is the value of the node label by which pools choose.
	Pool string
	// Board is the GPUs' key in the board data, such as h100-80gb.
	Board string
	// GPUs is how many it has.
	GPUs int
}

// Add makes the node, waits until the manager has given its GPUs to the pool, and publishes them.
func Add(ctx context.Context, c client.Client, n Node) error {
	boards, err := builders.ReadBoards()
	if err != nil {
		return fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	board, known := boards[n.Board]
	if !known {
		return fmt.Errorf("no board %q", n.Board)
	}
	node, err := n.create(ctx, c)
	if err != nil {
		return err
	}
	object, err := n.report(ctx, c, board)
	if err != nil {
		return err
	}
	err = stack.Poll(ctx, "the GPUs of "+n.Name+" belong to pool "+n.Pool, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return len(object.Decisions()) == n.GPUs, err
	})
	if err != nil {
		return err
	}
	if err := n.publish(ctx, c, node, board, object); err != nil {
		return err
	}
	builders.Publish(object)
	if err := c.Status().Update(ctx, object); err != nil {
		return fmt.Errorf("reporting what is published of %s: %w", n.Name, err)
	}
	return nil
}

// create makes the Node, ready from the first moment.
func (n Node) create(ctx context.Context, c client.Client) (*corev1.Node, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, Labels: map[string]string{builders.PoolNodeLabel: n.Pool, corev1.LabelHostname: n.Name},
	}}
	if err := c.Create(ctx, node); err != nil {
		return nil, fmt.Errorf("creating node %s: %w", n.Name, err)
	}
	fresh := node.DeepCopy()
	fresh.Status = status(time.Now())
	if err := c.Status().Patch(ctx, fresh, client.MergeFrom(node)); err != nil { // controllers write to a new node too
		return nil, fmt.Errorf("saying that node %s is ready: %w", n.Name, err)
	}
	// Admission taints every new node as not ready; nobody need wait until a controller takes that back.
	if err := c.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"taints":null}}`))); err != nil {
		return nil, fmt.Errorf("taking the first taint off node %s: %w", n.Name, err)
	}
	return node, nil
}

func status(now time.Time) corev1.NodeStatus {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("10Ti"),
		corev1.ResourcePods: resource.MustParse("2000"),
	}
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity.DeepCopy(),
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "OnPaper",
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
		}},
	}
}

// report makes the GPUNode and says what GPUs the node has.
func (n Node) report(ctx context.Context, c client.Client, board gpu.GPU) (*v1alpha1.GPUNode, error) {
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if err := c.Create(ctx, object); err != nil {
		return nil, fmt.Errorf("creating GPUNode %s: %w", n.Name, err)
	}
	for _, p := range board.Profiles {
		object.Status.Profiles = append(object.Status.Profiles, v1alpha1.MIGProfile{
			Product: board.Product, Name: p.Name, Memory: resource.NewQuantity(p.MemoryBytes, resource.BinarySI),
			Compute: int32(p.Compute(board.ComputeSlices)),
		})
	}
	for i := range n.GPUs {
		object.Status.GPUs = append(object.Status.GPUs, v1alpha1.GPUStatus{
			UUID: builders.UUID(n.Name, i), Minor: ptr.To(int32(i)),
			Product: board.Product, Architecture: "Hopper",
			Memory: resource.NewQuantity(board.MemoryBytes, resource.BinarySI),
		})
	}
	if err := c.Status().Update(ctx, object); err != nil {
		return nil, fmt.Errorf("reporting the GPUs of %s: %w", n.Name, err)
	}
	return object, nil
}

// publish writes the slices: counter sets in one, the devices of each GPU in one more.
func (n Node) publish(ctx context.Context, c client.Client, node *corev1.Node, board gpu.GPU, object *v1alpha1.GPUNode) error {
	var contents []resourceapi.ResourceSliceSpec
	var sets []resourceapi.CounterSet
	for i, decision := range object.Decisions() {
		g := board
		g.UUID, g.Minor = decision.UUID, i
		list, set := devices.Build(devices.Offer{GPU: g, Minor: i, Decision: decision, DriverVersion: "580.159.04"})
		contents = append(contents, resourceapi.ResourceSliceSpec{Devices: list})
		if set != nil {
			sets = append(sets, *set)
		}
	}
	if len(sets) > 0 {
		contents = append(contents, resourceapi.ResourceSliceSpec{SharedCounters: sets})
	}
	for _, spec := range contents {
		spec.Driver, spec.NodeName = v1alpha1.DriverName, ptr.To(n.Name)
		spec.Pool = resourceapi.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: int64(len(contents))}
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName:    n.Name + "-",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			},
			Spec: spec,
		}
		if err := c.Create(ctx, slice); err != nil {
			return fmt.Errorf("publishing the GPUs of %s: %w", n.Name, err)
		}
	}
	return nil
}
