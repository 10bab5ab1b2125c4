// SPDX-License-Identifier: Apache-2.0

package sight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// Grants are what the allocation of a claim gives. Devices that the cache does not have are looked up; the error is a
// *quota.UnknownDeviceError where nothing describes one.
func (r Reader) Grants(ctx context.Context, claim *resourceapi.ResourceClaim) ([]quota.Grant, error) {
	facts, err := r.facts(ctx, assign.AllocatedNodes(claim))
	if err != nil {
		return nil, err
	}
	grants, err := quota.Grants(claim, facts)
	var unknown *quota.UnknownDeviceError
	if !errors.As(err, &unknown) {
		return grants, err //nolint:wrapcheck // nil: Grants fails in no other way
	}
	fresh, err := r.freshFacts(ctx, nodesOf(unknown))
	if err != nil {
		return nil, err
	}
	maps.Copy(facts, fresh)
	return quota.Grants(claim, facts) //nolint:wrapcheck // the error is for people already
}

func nodesOf(unknown *quota.UnknownDeviceError) []string {
	var nodes []string
	for _, device := range unknown.Devices {
		nodes = append(nodes, device.Pool)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// facts are the devices of some nodes as the cache has them.
func (r Reader) facts(ctx context.Context, nodes []string) (quota.Facts, error) {
	return gather(ctx, r.Cache, nodes, func(node string) []client.ListOption {
		return []client.ListOption{client.MatchingFields{SlicesByPool: node}, client.UnsafeDisableDeepCopy}
	})
}

// freshFacts are the devices of some nodes as the API server has them. Each node publishes its own.
func (r Reader) freshFacts(ctx context.Context, nodes []string) (quota.Facts, error) {
	return gather(ctx, r.Live, nodes, func(node string) []client.ListOption {
		return []client.ListOption{client.MatchingFields{
			resourceapi.ResourceSliceSelectorDriver: v1alpha1.DriverName, resourceapi.ResourceSliceSelectorNodeName: node,
		}}
	})
}

func gather(ctx context.Context, reader client.Reader, nodes []string, of func(node string) []client.ListOption) (quota.Facts, error) {
	var published []resourceapi.ResourceSlice
	var reported []v1alpha1.GPUNode
	for _, name := range nodes {
		slices := &resourceapi.ResourceSliceList{}
		if err := reader.List(ctx, slices, of(name)...); err != nil {
			return nil, fmt.Errorf("listing the devices of node %s: %w", name, err)
		}
		published = append(published, slices.Items...)
		node := &v1alpha1.GPUNode{}
		switch err := reader.Get(ctx, client.ObjectKey{Name: name}, node); {
		case err == nil:
			reported = append(reported, *node)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading GPUNode %s: %w", name, err)
		}
	}
	return quota.FactsOf(published, reported), nil
}
