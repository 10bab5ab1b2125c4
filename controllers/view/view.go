// SPDX-License-Identifier: Apache-2.0

// Package view reads from the manager's cache what decisions about nodes are made from. Objects it returns belong to the
// cache: they are read, never changed.
package view

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

// ClaimsByNode is the index of ResourceClaims by the nodes on which they hold devices of Sluice.
const ClaimsByNode = "sluice.allocatedNodes"

// Index adds the indexes that this package reads by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &resourceapi.ResourceClaim{}, ClaimsByNode, func(object client.Object) []string {
		claim, ok := object.(*resourceapi.ResourceClaim)
		if !ok {
			return nil
		}
		return assign.AllocatedNodes(claim)
	})
	if err != nil {
		return fmt.Errorf("indexing resource claims by node: %w", err)
	}
	return nil
}

// NodeMetadata is a Node of which only the metadata is read.
func NodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// Node is what is known of one node. The error is NotFound where there is no GPUNode, or no Node, of the name.
func Node(ctx context.Context, reader client.Reader, name string) (assign.Node, error) {
	gpuNode := &v1alpha1.GPUNode{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, gpuNode); err != nil {
		return assign.Node{}, fmt.Errorf("reading GPUNode %s: %w", name, err)
	}
	metadata := NodeMetadata()
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, metadata); err != nil {
		return assign.Node{}, fmt.Errorf("reading the labels of node %s: %w", name, err)
	}
	claims := &resourceapi.ResourceClaimList{}
	if err := reader.List(ctx, claims, client.MatchingFields{ClaimsByNode: name}, client.UnsafeDisableDeepCopy); err != nil {
		return assign.Node{}, fmt.Errorf("listing the claims on node %s: %w", name, err)
	}
	return assign.Node{GPUNode: gpuNode, Labels: metadata.Labels, Allocations: Allocations(name, claims.Items)}, nil
}

// Allocations are what claims hold on a node.
func Allocations(node string, claims []resourceapi.ResourceClaim) []assign.Allocation {
	var allocations []assign.Allocation
	for i := range claims {
		allocations = append(allocations, assign.AllocationsOn(node, &claims[i])...)
	}
	return allocations
}

// Nodes is what is known of every node that has an agent.
func Nodes(ctx context.Context, reader client.Reader) ([]assign.Node, error) {
	gpuNodes, err := GPUNodes(ctx, reader)
	if err != nil {
		return nil, err
	}
	metadata := &metav1.PartialObjectMetadataList{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := reader.List(ctx, metadata, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the nodes' labels: %w", err)
	}
	labels := make(map[string]map[string]string, len(metadata.Items))
	for i := range metadata.Items {
		labels[metadata.Items[i].Name] = metadata.Items[i].Labels
	}
	claims := &resourceapi.ResourceClaimList{}
	if err := reader.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing resource claims: %w", err)
	}
	allocations := map[string][]assign.Allocation{}
	for i := range claims.Items {
		for _, node := range assign.AllocatedNodes(&claims.Items[i]) {
			allocations[node] = append(allocations[node], assign.AllocationsOn(node, &claims.Items[i])...)
		}
	}
	nodes := make([]assign.Node, 0, len(gpuNodes))
	for i := range gpuNodes {
		name := gpuNodes[i].Name
		nodes = append(nodes, assign.Node{GPUNode: &gpuNodes[i], Labels: labels[name], Allocations: allocations[name]})
	}
	return nodes, nil
}

// GPUNodes are all GPUNodes.
func GPUNodes(ctx context.Context, reader client.Reader) ([]v1alpha1.GPUNode, error) {
	nodes := &v1alpha1.GPUNodeList{}
	if err := reader.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing GPUNodes: %w", err)
	}
	return nodes.Items, nil
}

// Pools are all pools.
func Pools(ctx context.Context, reader client.Reader) ([]v1alpha1.GPUPool, error) {
	pools := &v1alpha1.GPUPoolList{}
	if err := reader.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	return pools.Items, nil
}

// Classes are all DeviceClasses.
func Classes(ctx context.Context, reader client.Reader) ([]resourceapi.DeviceClass, error) {
	classes := &resourceapi.DeviceClassList{}
	if err := reader.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing device classes: %w", err)
	}
	return classes.Items, nil
}

// EveryPool names every pool, whatever has changed: a GPU that one pool loses is one that another may gain. Where the pools
// cannot be read, the log says what comes late by that.
func EveryPool(reader client.Reader, late string) func(context.Context, client.Object) []string {
	return func(ctx context.Context, object client.Object) []string {
		pools, err := Pools(ctx, reader)
		if err != nil {
			log.FromContext(ctx).Error(err, late+" with the next change only", "object", object.GetName())
			return nil
		}
		names := make([]string, 0, len(pools))
		for i := range pools {
			names = append(names, pools[i].Name)
		}
		return names
	}
}
