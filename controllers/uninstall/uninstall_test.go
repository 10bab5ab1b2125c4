// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

func claim(drivers []string, pods ...string) resourceapi.ResourceClaim {
	c := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}
	if drivers != nil {
		c.Status.Allocation = &resourceapi.AllocationResult{}
	}
	for _, driver := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: driver})
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod})
	}
	return c
}

func TestTenants(t *testing.T) {
	cases := map[string]struct {
		claim resourceapi.ResourceClaim
		want  []string
	}{
		"a claim that waits holds nothing":        {claim: claim(nil)},
		"another driver's devices are not asked":  {claim: claim([]string{"gpu.example.com"})},
		"a claim that nobody uses holds a device": {claim: claim([]string{v1alpha1.DriverName}), want: []string{"claim team/a"}},
		"a claim is known by its pods": {
			claim: claim([]string{"gpu.example.com", v1alpha1.DriverName}, "one", "two"), want: []string{"claim team/a (pod one, two)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tenants([]resourceapi.ResourceClaim{tc.claim})); diff != "" {
				t.Errorf("tenants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPresent(t *testing.T) {
	cases := map[string]struct {
		conditions []metav1.Condition
		want       []string
	}{
		"an agent that never reported is not gone": {want: []string{"n (its agent has never reported)"}},
		"an agent that has left": {conditions: []metav1.Condition{
			{Type: v1alpha1.NodeReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLeft},
		}},
		"an agent that works on": {
			conditions: []metav1.Condition{{Type: v1alpha1.NodeReady, Status: metav1.ConditionTrue, Reason: "Published", Message: "all is well"}},
			want:       []string{"n (Published: all is well)"},
		},
		"an agent that cannot leave": {
			conditions: []metav1.Condition{{Type: v1alpha1.NodeReady, Status: metav1.ConditionFalse, Reason: "InUse", Message: "a file is busy"}},
			want:       []string{"n (InUse: a file is busy)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.GPUNodeStatus{Conditions: tc.conditions}}
			if diff := cmp.Diff(tc.want, present([]v1alpha1.GPUNode{node})); diff != "" {
				t.Errorf("present (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnumerateNamesTheFirstOfMany(t *testing.T) {
	names := []string{"l", "k", "j", "i", "h", "g", "f", "e", "d", "c", "b", "a"}
	if diff := cmp.Diff("a, b, c, d, e, f, g, h, i, j and 2 more", enumerate(names)); diff != "" {
		t.Errorf("many (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("default", enumerate([]string{"default"})); diff != "" {
		t.Errorf("one (-want +got):\n%s", diff)
	}
}
