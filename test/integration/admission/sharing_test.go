// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// At 150 % one GPU publishes more than it has, so that the scheduler alone would put both containers on one.
func TestOneClaimNeverGetsMoreOfAGPUThanThereIs(t *testing.T) {
	for _, tc := range []struct {
		name, pool    string
		gpus          int
		first, second string
		want          int
	}{
		{name: "two large shares get two GPUs where a node has them", pool: "pair", gpus: 2, first: "59Gi", second: "59Gi", want: 2},
		{name: "two large shares wait where no node has two GPUs", pool: "single", gpus: 1, first: "59Gi", second: "59Gi"},
		{name: "shares that fit one GPU together get one", pool: "fits", gpus: 2, first: "39Gi", second: "40Gi", want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSharedNode(t, tc.pool, tc.gpus)
			pod := builders.MakePod("p").Pool(tc.pool).Memory(tc.first).Container("second").Memory(tc.second).Obj()
			s.create(pod)
			if tc.want == 0 {
				s.waits(pod)
				return
			}
			if got := s.devices(pod); len(got) != tc.want {
				t.Errorf("the containers got the devices %v, want %d different ones", got, tc.want)
			}
		})
	}
}

// newSharedNode makes a pool at 150 % and a node with the real agent.
func newSharedNode(t *testing.T, pool string, gpus int) scene {
	t.Helper()
	made := builders.MakePool(pool).Overcommit(150, 150).Obj()
	if err := cluster.Client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Client.Delete(context.WithoutCancel(t.Context()), made); err != nil {
			t.Error(err)
		}
	})
	node := "n-" + pool
	if err := cluster.AddNode(t.Context(), stack.Node{Name: node, Pool: pool, Board: "h100-80gb", GPUs: gpus}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.RemoveNode(context.WithoutCancel(t.Context()), node); err != nil {
			t.Error(err)
		}
	})
	s := newScene(t)
	s.wait("the GPUs of "+node+" are published", func(ctx context.Context) (bool, error) {
		slices := &resourceapi.ResourceSliceList{}
		if err := cluster.Client.List(ctx, slices, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: node}); err != nil {
			return false, err
		}
		devices := 0
		for i := range slices.Items {
			devices += len(slices.Items[i].Spec.Devices)
		}
		return devices == gpus, nil
	})
	return s
}

// devices are the different devices that a pod's claim was given.
func (s scene) devices(pod *corev1.Pod) map[string]bool {
	s.Helper()
	claim := s.claim(pod)
	s.wait("the claim of pod "+pod.Name+" is allocated", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return claim.Status.Allocation != nil, err
	})
	given := map[string]bool{}
	for _, result := range claim.Status.Allocation.Devices.Results {
		given[result.Device] = true
	}
	return given
}

// waits polls until the scheduler has found no place for a pod that has its claim.
func (s scene) waits(pod *corev1.Pod) {
	s.Helper()
	claim := s.claim(pod)
	s.wait("the scheduler finds no place for pod "+pod.Name, func(ctx context.Context) (bool, error) {
		events, err := cluster.Kubectl(ctx, "get", "events", "-n", s.namespace, "-o", "jsonpath={.items[*].message}")
		return err == nil && strings.Contains(events, "cannot allocate all claims"), err
	})
	if err := cluster.Client.Get(s.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		s.Fatal(err)
	}
	if claim.Status.Allocation != nil {
		s.Errorf("the claim was given %v", claim.Status.Allocation.Devices.Results)
	}
}
