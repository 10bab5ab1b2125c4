// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

const (
	sixth = "gpu-0-mig-1g10gb-6"
	lower = "gpu-0-mig-3g40gb-0"
)

// withLayout is a node whose GPU has the layout 3g.40gb at 0, 1g.10gb at 6 and, beyond it, somebody's 1g.10gb at 5.
func withLayout(sharing v1alpha1.SharingMode) *outside {
	form := divided()
	form.Strategy, form.Sharing, form.MaxTenants = v1alpha1.MIGStatic, sharing, 2
	o := newOutside([]gpu.GPU{h100(0, migOn)}, form)
	o.node.GPUs[0].Instances = []gpu.Instance{
		{Profile: "3g.40gb", Start: 0, Size: 4, GIID: 11, UUID: "MIG-a"},
		{Profile: "1g.10gb", Start: 5, Size: 1, GIID: 12, UUID: "MIG-x"},
		{Profile: "1g.10gb", Start: 6, Size: 1, GIID: 13, UUID: "MIG-b"},
	}
	o.published.GPUs[0].Instances = []checkpoint.Standing{
		{Placement: checkpoint.Placement{Profile: "3g.40gb", Start: 0, Size: 4}, UUID: "MIG-a", MemoryBytes: 40 << 30, Compute: 42},
		{Placement: checkpoint.Placement{Profile: "1g.10gb", Start: 6, Size: 1}, UUID: "MIG-b", MemoryBytes: 9 << 30, Compute: 14},
	}
	return o
}

func TestPrepareOnALayout(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sharing v1alpha1.SharingMode
		before  []*resourceapi.ResourceClaim
		change  func(*outside)
		claim   *resourceapi.ResourceClaim
		want    string // part of the refusal; "" where the claim is prepared
	}{
		{name: "an instance is given to a claim", sharing: v1alpha1.SharingExclusive, claim: claim("a", device(sixth))},
		{name: "one that the layout has not is refused", sharing: v1alpha1.SharingExclusive, claim: claim("a", device("gpu-0-mig-1g10gb-5")), want: "no MIG instance"},
		{
			name: "one that another claim has is refused", sharing: v1alpha1.SharingExclusive, claim: claim("a", device(sixth)), want: "still held by claim ns/b",
			before: []*resourceapi.ResourceClaim{claim("b", device(sixth))},
		},
		{
			name: "one beside another is given", sharing: v1alpha1.SharingExclusive, claim: claim("a", device(lower)),
			before: []*resourceapi.ResourceClaim{claim("b", device(sixth))},
		},
		{
			name: "one that is being made is refused for now", sharing: v1alpha1.SharingExclusive, claim: claim("a", device(sixth)), want: "is being made",
			change: func(o *outside) { o.node.GPUs[0].Instances = nil },
		},
		{name: "shares of one are given", sharing: v1alpha1.SharingSoftware, claim: claim("a", device(lower, amount("20Gi", "20")))},
		{
			name: "two shares of one are given", sharing: v1alpha1.SharingSoftware, claim: claim("a", device(lower, amount("20Gi", "20"))),
			before: []*resourceapi.ResourceClaim{claim("b", device(lower, amount("20Gi", "20")))},
		},
		{
			name: "a third share is refused while a holder's claim is gone", sharing: v1alpha1.SharingSoftware, claim: claim("a", device(lower, amount("1Gi", "1"))), want: "gone from the API",
			before: []*resourceapi.ResourceClaim{claim("b", device(lower, amount("1Gi", "1"))), claim("c", device(lower, amount("1Gi", "1")))},
			change: func(o *outside) { delete(o.api, "ns/b") },
		},
		{
			name: "shares of different instances do not add up", sharing: v1alpha1.SharingSoftware, claim: claim("a", device(sixth, amount("9Gi", "14"))),
			before: []*resourceapi.ResourceClaim{claim("b", device(lower, amount("40Gi", "42")))}, change: func(o *outside) { delete(o.api, "ns/b") },
		},
		{
			name: "requests of one claim that are together more than the instance are refused", sharing: v1alpha1.SharingSoftware, want: "which has 40960 MiB and 42 %",
			claim: claim("a", device(lower, amount("21Gi", "1")), device(lower, amount("21Gi", "1"))),
		},
		{name: "a share of an exclusive instance is refused", sharing: v1alpha1.SharingExclusive, claim: claim("a", device(lower, amount("1Gi", "1"))), want: "published as a whole"},
		{name: "admin access is prepared", sharing: v1alpha1.SharingExclusive, claim: claim("a", device(lower, admin)), before: []*resourceapi.ResourceClaim{claim("b", device(lower))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := withLayout(tc.sharing)
			o.mustPrepare(t, tc.before...)
			if tc.change != nil {
				tc.change(o)
			}
			there := len(o.node.GPUs[0].Instances)
			results, err := o.preparer().Prepare(t.Context(), tc.claim)
			if tc.want != "" {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Prepare() = %v, want a refusal with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if results[0].Instance == nil || !results[0].Standing {
				t.Errorf("result is %+v", results[0])
			}
			if err := o.preparer().Unprepare(t.Context(), string(tc.claim.UID)); err != nil {
				t.Fatal(err)
			}
			if got := len(o.node.GPUs[0].Instances); got != there {
				t.Errorf("%d instances after the claim was released, %d before", got, there)
			}
		})
	}
}

func TestAShareOfAnInstanceIsHeldToItsPart(t *testing.T) {
	o := withLayout(v1alpha1.SharingSoftware)
	o.mustPrepare(t, claim("a", device(lower, amount("20Gi", "21"))))
	share := o.shares["uid-a"][0]
	if share.UUID != "MIG-a" || share.ParentUUID != "GPU-0" || share.MemoryLimit != 20<<30 || share.ComputeShare != 5000 {
		t.Errorf("share is %+v, want half of MIG-a", share)
	}
}

func TestClaimsFollowAnInstanceThatWasMadeAnew(t *testing.T) {
	o := withLayout(v1alpha1.SharingExclusive)
	o.mustPrepare(t, claim("a", device(lower)))
	if Moved(o.recorded, o.published) {
		t.Error("nothing has moved yet")
	}
	o.node.GPUs[0].Instances[0].UUID = "MIG-new"
	o.published.GPUs[0].Instances[0].UUID = "MIG-new"
	if !Moved(o.recorded, o.published) {
		t.Error("the instance is another one, but Moved does not say so")
	}
	if err := o.preparer().Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("MIG-new", o.recorded.Claims["uid-a"].Results[0].Instance.UUID); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("MIG-new", o.specs["uid-a"][0].UUID); diff != "" {
		t.Errorf("CDI spec (-want +got):\n%s", diff)
	}
}

func TestMaintainLeavesLayoutsAlone(t *testing.T) {
	o := withLayout(v1alpha1.SharingExclusive)
	o.recorded.MIGModeFoundOff = []string{"GPU-0"}
	if err := o.preparer().Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(o.node.GPUs[0].Instances) != 3 || o.node.GPUs[0].MIGMode != gpu.MIGEnabled {
		t.Errorf("GPU is %+v", o.node.GPUs[0])
	}
}
