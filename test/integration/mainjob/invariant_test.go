// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// nothingAllocatedDisappears watches until the returned function is called: a device that a claim holds must be in the
// slices at every look. A device that is not, frees its counters, and the GPU is given away twice.
func (s scene) nothingAllocatedDisappears(node string) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				checkAllocatedArePublished(ctx, s.T, node)
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wait.Wait() })
	s.Cleanup(stop)
	return stop
}

// checkAllocatedArePublished reads claims before and after the slices: one held both times must be published between.
func checkAllocatedArePublished(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	before, err := allocated(ctx, node)
	if err != nil {
		return // the test ends, or has taken the API server away
	}
	var list resourceapi.ResourceSliceList
	if cluster.Client.List(ctx, &list) != nil {
		return
	}
	after, err := allocated(ctx, node)
	if err != nil {
		return
	}
	published := map[string]bool{}
	for _, slice := range list.Items {
		if slice.Spec.Driver == v1alpha1.DriverName && slice.Spec.Pool.Name == node {
			for _, d := range slice.Spec.Devices {
				published[d.Name] = true
			}
		}
	}
	for uid, device := range before {
		if after[uid] == device && !published[device] {
			t.Errorf("claim %s holds %s, which is not published (%d devices are)", uid, device, len(published))
		}
	}
}

// allocated are the devices of the node that claims hold, by claim.
func allocated(ctx context.Context, node string) (map[types.UID]string, error) {
	var list resourceapi.ResourceClaimList
	if err := cluster.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	held := map[types.UID]string{}
	for _, claim := range list.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == v1alpha1.DriverName && r.Pool == node {
				held[claim.UID] = r.Device
			}
		}
	}
	return held, nil
}

// holdings are the devices of the node that claims hold, one for each result of each claim, in order.
func holdings(ctx context.Context, node string) ([]string, error) {
	var list resourceapi.ResourceClaimList
	if err := cluster.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	var devices []string
	for _, claim := range list.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == v1alpha1.DriverName && r.Pool == node {
				devices = append(devices, r.Device)
			}
		}
	}
	slices.Sort(devices)
	return devices, nil
}
