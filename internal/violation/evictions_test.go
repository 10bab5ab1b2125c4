// SPDX-License-Identifier: Apache-2.0

package violation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/violation"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestEvictions(t *testing.T) {
	const own, foreign = "default/tenant", "default/other"
	for _, tc := range []struct {
		name   string
		change func(v *v1alpha1.Violation, d *v1alpha1.GPUDecision, c *resourceapi.ResourceClaim)
		want   []string
	}{
		{"a pod that violates its limit", func(*v1alpha1.Violation, *v1alpha1.GPUDecision, *resourceapi.ResourceClaim) {}, []string{own}},
		{"the pool only has it reported", func(_ *v1alpha1.Violation, d *v1alpha1.GPUDecision, _ *resourceapi.ResourceClaim) {
			d.OnViolation = v1alpha1.ViolationReport
		}, nil},
		{"the agent only reports it", func(v *v1alpha1.Violation, _ *v1alpha1.GPUDecision, _ *resourceapi.ResourceClaim) {
			v.Action = v1alpha1.ViolationReport
		}, nil},
		{"the GPU is not the node's", func(v *v1alpha1.Violation, _ *v1alpha1.GPUDecision, _ *resourceapi.ResourceClaim) { v.GPU = "GPU-x" }, nil},
		{"the claim holds a device of another node", func(_ *v1alpha1.Violation, _ *v1alpha1.GPUDecision, c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Results[0].Pool = "m"
		}, nil},
		{"the claim holds a device of another driver", func(_ *v1alpha1.Violation, _ *v1alpha1.GPUDecision, c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Results[0].Driver = "x"
		}, nil},
		{"the claim has no such result", func(v *v1alpha1.Violation, _ *v1alpha1.GPUDecision, _ *resourceapi.ResourceClaim) {
			v.Result = ptr.To(int32(1))
		}, nil},
		{"the claim is freed", func(_ *v1alpha1.Violation, _ *v1alpha1.GPUDecision, c *resourceapi.ResourceClaim) {
			c.Status.Allocation = nil
		}, nil},
		{"another claim has its name", func(v *v1alpha1.Violation, _ *v1alpha1.GPUDecision, _ *resourceapi.ResourceClaim) { v.ClaimUID = "old" }, nil},
		{"pods that do not have the claim are left alone, whatever the agent says", func(v *v1alpha1.Violation, _ *v1alpha1.GPUDecision, _ *resourceapi.ResourceClaim) {
			v.Pods = []string{foreign}
		}, nil},
		{"of several pods those that are named", func(v *v1alpha1.Violation, _ *v1alpha1.GPUDecision, c *resourceapi.ResourceClaim) {
			v.Pods = []string{own}
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "other", UID: "8"})
		}, []string{own}},
		{"all of them where none is named", func(_ *v1alpha1.Violation, _ *v1alpha1.GPUDecision, c *resourceapi.ResourceClaim) {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "other", UID: "8"})
		}, []string{own, foreign}},
		{"what is not a pod", func(_ *v1alpha1.Violation, _ *v1alpha1.GPUDecision, c *resourceapi.ResourceClaim) {
			c.Status.ReservedFor[0].Resource = "jobs"
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := v1alpha1.Violation{ClaimUID: "c", Result: ptr.To(int32(0)), GPU: builders.UUID("n", 0), Action: v1alpha1.ViolationEvict}
			d := v1alpha1.GPUDecision{UUID: builders.UUID("n", 0), OnViolation: v1alpha1.ViolationEvict}
			claim := builders.Allocated("tenant", "n", "gpu-0", "10Gi")
			claim.UID, claim.Status.ReservedFor[0].UID = "c", "7"
			tc.change(&v, &d, claim)
			node := builders.MakeGPUNode("n", 1).Decided(d).Obj()
			node.Status.Violations = []v1alpha1.Violation{v}
			var got []string
			for _, e := range violation.Evictions(node, []resourceapi.ResourceClaim{*claim}) {
				got = append(got, e.Namespace+"/"+e.Pod)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("evictions (-want +got):\n%s", diff)
			}
		})
	}
}
