// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// policiesOf are those that the shares of claims go by.
func policiesOf(o *outside) map[string]uint32 {
	policies := map[string]uint32{}
	for uid, shares := range o.shares {
		policies[uid] = shares[0].Policy
	}
	return policies
}

func TestTheComputePolicyFollowsThePool(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0), h100(1)}, shared(), shared())
	o.published.GPUs[0].Form.Compute = v1alpha1.ComputeCap
	o.mustPrepare(t, claim("a", device("gpu-0", amount("1Gi", "1"))), claim("b", device("gpu-1", amount("1Gi", "1"))))
	want := map[string]uint32{"uid-a": limits.PolicyCap, "uid-b": limits.PolicyShare}
	if diff := cmp.Diff(want, policiesOf(o)); diff != "" {
		t.Errorf("policies of new shares (-want +got):\n%s", diff)
	}
	if PolicyDiffers(o.recorded, o.published) {
		t.Error("a policy differs at once")
	}

	o.published.GPUs[0].Form.Compute, o.published.GPUs[1].Form.Compute = v1alpha1.ComputeShare, v1alpha1.ComputeCap
	if !PolicyDiffers(o.recorded, o.published) {
		t.Error("no policy differs after the pool has changed")
	}
	if err := o.preparer().Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = map[string]uint32{"uid-a": limits.PolicyShare, "uid-b": limits.PolicyCap}
	if diff := cmp.Diff(want, policiesOf(o)); diff != "" {
		t.Errorf("policies of running shares (-want +got):\n%s", diff)
	}
	if PolicyDiffers(o.recorded, o.published) {
		t.Error("a policy still differs")
	}
}

func TestAPolicyThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	o.mustPrepare(t, claim("a", device("gpu-0", amount("1Gi", "1"))))
	o.published.GPUs[0].Form.Compute = v1alpha1.ComputeCap
	o.failAt = len(o.calls)
	if err := o.preparer().Maintain(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("Maintain() = %v", err)
	}
	if !PolicyDiffers(o.recorded, o.published) {
		t.Error("it is taken for written")
	}
}
