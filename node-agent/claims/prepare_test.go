// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// withParameters is a claim of a GPU with parameters for a driver.
func withParameters(driver string, source resourceapi.AllocationConfigSource, requests ...string) *resourceapi.ResourceClaim {
	c := claim("a", device("gpu-1"))
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: source, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver}},
	}}
	return c
}

func TestPrepareRefuses(t *testing.T) {
	forms := []v1alpha1.GPUDecision{shared(), exclusive(), divided(), divided()}
	for _, tc := range []struct {
		name   string
		before []*resourceapi.ResourceClaim
		change func(*outside)
		claim  *resourceapi.ResourceClaim
		// want is part of the refusal; "" where the claim is prepared.
		want string
	}{
		{name: "a share is prepared", claim: claim("a", device("gpu-0", amount("10Gi", "30")))},
		{name: "a whole GPU is prepared", claim: claim("a", device("gpu-1"))},
		{name: "a MIG instance is prepared", claim: claim("a", device("gpu-2-mig-1g10gb-6"))},
		{name: "a claim of other drivers only is none of ours", claim: claim("a", device("x", otherDriver))},
		{name: "parameters for this driver are refused", claim: withParameters("gpu.sluice.dev", resourceapi.AllocationConfigSourceClaim), want: "the claim has opaque parameters"},
		{name: "those of a class too", claim: withParameters("gpu.sluice.dev", resourceapi.AllocationConfigSourceClass, "gpu"), want: "the device class has opaque parameters"},
		{name: "those for another request are not for us", claim: withParameters("gpu.sluice.dev", resourceapi.AllocationConfigSourceClaim, "nic")},
		{name: "those for another driver are not for us", claim: withParameters("nic.example.com", resourceapi.AllocationConfigSourceClaim)},
		{name: "a device of another node is refused", claim: claim("a", device("gpu-1", func(r *resourceapi.DeviceRequestAllocationResult) { r.Pool = "other" })), want: "belongs to node other"},
		{name: "a device that is not published is refused", claim: claim("a", device("gpu-9")), want: "gpu-9 is not published"},
		{name: "a name that is no device is refused", claim: claim("a", device("nic-0")), want: "not one of this driver's"},
		{name: "a whole GPU that is divided now is refused", claim: claim("a", device("gpu-2")), want: "no MIG placement"},
		{name: "a placement that the board lacks is refused", claim: claim("a", device("gpu-2-mig-1g10gb-7")), want: "no MIG placement"},
		{name: "a MIG instance of a GPU that is whole now is refused", claim: claim("a", device("gpu-1-mig-1g10gb-6")), want: "published whole now"},
		{name: "requests of one claim that are together more than the GPU has are refused", claim: claim("a", device("gpu-0", amount("59Gi", "1")), device("gpu-0", amount("59Gi", "1"))), want: "together"},
		{name: "requests of one claim that are together more than all compute are refused", claim: claim("a", device("gpu-0", amount("1Gi", "60")), device("gpu-0", amount("1Gi", "60"))), want: "together"},
		{name: "a whole GPU that is shared now is refused", claim: claim("a", device("gpu-0")), want: "allocated as a whole, but is published in shares"},
		{name: "a share of a GPU that is given whole now is refused", claim: claim("a", device("gpu-1", amount("1Gi", "1"))), want: "allocated in shares, but is published as a whole"},
		{
			name: "a share without amounts is refused", want: "carries no amount",
			claim: claim("a", device("gpu-0", amount("1Gi", "1"), func(r *resourceapi.DeviceRequestAllocationResult) { r.ConsumedCapacity = nil })),
		},
		{
			name: "a whole GPU that another claim holds is refused", want: "still held by claim ns/b (uid-b)",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-1"))}, claim: claim("a", device("gpu-1")),
		},
		{
			name: "an overlapping placement is refused", want: "still held by claim ns/b",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-2-mig-3g40gb-0"))}, claim: claim("a", device("gpu-2-mig-1g10gb-3")),
		},
		{
			name:   "a placement beside another is prepared",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-2-mig-3g40gb-0"))}, claim: claim("a", device("gpu-2-mig-1g10gb-4")),
		},
		{
			name: "two results that overlap are refused", want: "cannot be had together",
			claim: claim("a", device("gpu-2-mig-3g40gb-0"), device("gpu-2-mig-1g10gb-0")),
		},
		{
			name: "a whole GPU is refused while an instance of it is held", want: "still held by claim ns/b",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-2-mig-1g10gb-6"))},
			change: func(o *outside) { o.published.GPUs[2].Form = exclusive() }, claim: claim("a", device("gpu-2")),
		},
		{
			name:   "shares within what is published are prepared",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-0", amount("80Gi", "100")))}, claim: claim("a", device("gpu-0", amount("40Gi", "100"))),
		},
		{
			name: "shares beyond what is published are refused while a holder's claim is gone", want: "gone from the API",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-0", amount("80Gi", "100")))},
			change: func(o *outside) { delete(o.api, "ns/b") }, claim: claim("a", device("gpu-0", amount("41Gi", "1"))),
		},
		{
			name: "a holder's claim of another UID is gone", want: "gone from the API",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-0", amount("1Gi", "100"))), claim("d", device("gpu-0", amount("1Gi", "50")))},
			change: func(o *outside) { o.api["ns/b"] = claim("c") }, claim: claim("a", device("gpu-0", amount("1Gi", "51"))),
		},
		{
			name:   "shares beyond what is published are prepared where all holders are there, since the ratio has shrunk",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-0", amount("80Gi", "100")))},
			change: func(o *outside) { o.published.GPUs[0].Form.MemoryPercent = 100 }, claim: claim("a", device("gpu-0", amount("40Gi", "1"))),
		},
		{name: "admin access to a shared GPU is prepared", claim: claim("a", device("gpu-0", admin))},
		{
			name:   "admin access beside a claim that has the whole GPU is prepared",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-1"))}, claim: claim("a", device("gpu-1", admin)),
		},
		{
			name:   "admin access to an instance that is there is prepared",
			before: []*resourceapi.ResourceClaim{claim("b", device("gpu-2-mig-1g10gb-6"))}, claim: claim("a", device("gpu-2-mig-1g10gb-6", admin)),
		},
		{name: "admin access to an instance that is not there is refused", claim: claim("a", device("gpu-2-mig-1g10gb-6", admin)), want: "there is no such MIG instance"},
		{name: "an instance of an Ampere GPU with MIG mode off is refused", claim: claim("a", device("gpu-3-mig-1g10gb-6")), want: "cannot be turned on without a reset"},
		{
			name: "an instance of a GPU that has vanished is refused", want: "is not to be seen",
			change: func(o *outside) { o.node.GPUs = o.node.GPUs[:1] }, claim: claim("a", device("gpu-2-mig-1g10gb-6")),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutside([]gpu.GPU{h100(0), h100(1), h100(2), h100(3, ampere)}, forms...)
			o.mustPrepare(t, tc.before...)
			if tc.change != nil {
				tc.change(o)
			}
			before := len(o.recorded.Claims)
			_, err := o.preparer().Prepare(t.Context(), tc.claim)
			if tc.want == "" {
				if err != nil {
					t.Errorf("Prepare() = %v", err)
				}
				return
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Prepare() = %v, want a refusal that says %q", err, tc.want)
			}
			if len(o.recorded.Claims) != before || len(o.specs) != before || len(o.shares) != before {
				t.Errorf("the refused claim left something: %d claims, %d specs, %d shares", len(o.recorded.Claims), len(o.specs), len(o.shares))
			}
		})
	}
}

func TestPrepareGrants(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0), h100(1), h100(2)}, shared(), exclusive(), divided())
	c := claim("a", device("x", otherDriver), device("gpu-0", amount("10Gi", "30")), device("gpu-1"), device("gpu-2-mig-3g40gb-4"))
	results, err := o.preparer().Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantShares := []limits.Share{
		{ClaimUID: "uid-a", Index: 1, UUID: "GPU-0", ParentUUID: "GPU-0", MemoryLimit: 10 << 30, Context: 640 << 20, ComputeShare: 3000, Enforce: limits.EnforceMemory | limits.EnforceCompute},
		{ClaimUID: "uid-a", Index: 2, UUID: "GPU-1", ParentUUID: "GPU-1", MemoryLimit: 80 << 30, Context: 640 << 20, ComputeShare: 10000},
		{ClaimUID: "uid-a", Index: 3, UUID: "MIG-1", ParentUUID: "GPU-2", MemoryLimit: 40 << 30, Context: 640 << 20, ComputeShare: 10000},
	}
	if diff := cmp.Diff(wantShares, o.shares["uid-a"]); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	wantGrants := []Grant{
		{Name: "1", UUID: "GPU-0", Mounts: []Mount{
			{HostPath: "/shares/uid-a/1/limits", ContainerPath: "/run/sluice/uid-a/1/limits", ReadOnly: true},
			{HostPath: "/shares/uid-a/1/usage", ContainerPath: "/run/sluice/uid-a/1/usage"},
			{HostPath: "/shares/uid-a/1/bell", ContainerPath: "/run/sluice/uid-a/1/bell"},
			{HostPath: "/lib/v1.so", ContainerPath: "/inside/v1.so", ReadOnly: true, Executable: true},
			{HostPath: "/shares/heartbeat", ContainerPath: "/run/sluice/heartbeat", ReadOnly: true},
			{HostPath: "/lib/v1.preload", ContainerPath: "/etc/ld.so.preload", ReadOnly: true},
		}},
		{Name: "2", UUID: "GPU-1", Mounts: []Mount{{HostPath: "/shares/uid-a/2/limits", ContainerPath: "/run/sluice/uid-a/2/limits", ReadOnly: true}}},
		{Name: "3", UUID: "MIG-1", Mounts: []Mount{{HostPath: "/shares/uid-a/3/limits", ContainerPath: "/run/sluice/uid-a/3/limits", ReadOnly: true}}},
	}
	if diff := cmp.Diff(wantGrants, o.specs["uid-a"]); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprintf("%d %s %s %v", r.Index, r.Device, r.ShareID, r.CDIDevices))
	}
	want := []string{"1 gpu-0 share [cdi=uid-a-1]", "2 gpu-1  [cdi=uid-a-2]", "3 gpu-2-mig-3g40gb-4  [cdi=uid-a-3]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	o.calls = nil
	again, err := o.preparer().Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(results, again); diff != "" || len(o.calls) > 0 {
		t.Errorf("a second Prepare made the calls %v and answered (-first +second):\n%s", o.calls, diff)
	}
}

// TestEveryFailureIsTakenBack lets each call fail in turn: a claim that is not prepared leaves nothing, though the first
// attempt to take it back may fail too.
func TestEveryFailureIsTakenBack(t *testing.T) {
	c := claim("a", device("gpu-0-mig-1g10gb-6"), device("gpu-0-mig-3g40gb-0"), device("gpu-1", amount("10Gi", "30")))
	for failAt := range 100 {
		o := newOutside([]gpu.GPU{h100(0), h100(1)}, divided(), shared())
		o.failAt = failAt
		_, err := o.preparer().Prepare(t.Context(), c)
		failed := "the last call"
		if failAt < len(o.calls) {
			failed = fmt.Sprintf("call %d, %s", failAt, o.calls[failAt])
		}
		if err == nil {
			if failAt < len(o.calls) {
				t.Errorf("%s failed, but Prepare did not", failed)
			}
			return
		}
		if !errors.Is(err, errInjected) {
			t.Errorf("%s failed, and Prepare answers %v", failed, err)
		}
		o.failAt = -1
		if err := o.preparer().Maintain(t.Context()); err != nil {
			t.Errorf("%s failed, and so does what comes after: %v", failed, err)
		}
		o.clean(t, failed)
		if _, err := o.preparer().Prepare(t.Context(), c); err != nil {
			t.Errorf("%s failed, and Prepare still does: %v", failed, err)
		}
	}
	t.Error("no end")
}

// TestEveryFailureOfUnprepareIsRepeated lets each call fail in turn: the next Unprepare leaves nothing.
func TestEveryFailureOfUnprepareIsRepeated(t *testing.T) {
	c := claim("a", device("gpu-0-mig-1g10gb-6"), device("gpu-1", amount("10Gi", "30")))
	for failAt := range 100 {
		o := newOutside([]gpu.GPU{h100(0), h100(1)}, divided(), shared())
		o.mustPrepare(t, c)
		o.calls, o.failAt = nil, failAt
		err := o.preparer().Unprepare(t.Context(), "uid-a")
		if failAt >= len(o.calls) {
			o.clean(t, "nothing")
			return
		}
		failed := fmt.Sprintf("call %d, %s", failAt, o.calls[failAt])
		o.failAt = -1
		if err != nil {
			if err := o.preparer().Unprepare(t.Context(), "uid-a"); err != nil {
				t.Errorf("%s failed, and so does the next Unprepare: %v", failed, err)
			}
		}
		if err := o.preparer().Maintain(t.Context()); err != nil {
			t.Errorf("%s failed, and so does what comes after: %v", failed, err)
		}
		o.clean(t, failed)
	}
	t.Error("no end")
}

func (o *outside) clean(t *testing.T, failed string) {
	t.Helper()
	if len(o.recorded.Claims)+len(o.recorded.MIGModeFoundOff)+len(o.specs)+len(o.shares) > 0 {
		t.Errorf("%s failed and left claims %v, modes %v, specs %v, shares %v",
			failed, o.recorded.Claims, o.recorded.MIGModeFoundOff, o.specs, o.shares)
	}
	for _, g := range o.node.GPUs {
		if len(g.Instances) > 0 || g.MIGMode != gpu.MIGDisabled {
			t.Errorf("%s failed and left instances %v with MIG mode %s", failed, g.Instances, g.MIGMode)
		}
	}
}

func TestUnprepareOfAnUnknownClaimSucceeds(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	if err := o.preparer().Unprepare(t.Context(), "unknown"); err != nil {
		t.Errorf("Unprepare() = %v", err)
	}
}

func TestMIGModeThatWasOnStaysOn(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0, migOn)}, divided())
	o.mustPrepare(t, claim("a", device("gpu-0-mig-1g10gb-6")))
	if err := o.preparer().Unprepare(t.Context(), "uid-a"); err != nil {
		t.Fatal(err)
	}
	if g := o.node.GPUs[0]; g.MIGMode != gpu.MIGEnabled || len(g.Instances) > 0 {
		t.Errorf("MIG mode is %s, instances are %v", g.MIGMode, g.Instances)
	}
}

func TestMIGModeStaysOnWhileAnInstanceIsLeft(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, divided())
	o.mustPrepare(t, claim("a", device("gpu-0-mig-1g10gb-6")), claim("b", device("gpu-0-mig-1g10gb-5")))
	for _, want := range []struct {
		uid  string
		mode gpu.MIGMode
	}{{"uid-a", gpu.MIGEnabled}, {"uid-b", gpu.MIGDisabled}} {
		if err := o.preparer().Unprepare(t.Context(), want.uid); err != nil {
			t.Fatal(err)
		}
		if got := o.node.GPUs[0].MIGMode; got != want.mode {
			t.Errorf("after %s was released MIG mode is %s, want %s", want.uid, got, want.mode)
		}
	}
}

func TestAClaimThatWasAllocatedAnewIsPreparedAnew(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0, migOn)}, divided())
	o.mustPrepare(t, claim("a", device("gpu-0-mig-1g10gb-6")), claim("a", device("gpu-0-mig-1g10gb-5")))
	if got := o.node.GPUs[0].Instances; len(got) != 1 || got[0].Start != 5 {
		t.Errorf("instances are %v", got)
	}
}

func TestRecoverAfterABoot(t *testing.T) {
	c := claim("a", device("gpu-0-mig-1g10gb-6"))
	booted := func(t *testing.T) (*outside, *Preparer) {
		t.Helper()
		o := newOutside([]gpu.GPU{h100(0), h100(1)}, divided(), divided())
		o.mustPrepare(t, c)
		// Hopper forgets MIG mode, the CDI directory may be on a disk.
		o.node.GPUs[0].MIGMode, o.node.GPUs[0].Instances = gpu.MIGDisabled, nil
		delete(o.shares, "uid-a")
		p := o.preparer()
		p.BootID = "next boot"
		if err := p.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		return o, p
	}
	t.Run("the claim still has its GPU, and nothing else", func(t *testing.T) {
		o, _ := booted(t)
		got := o.recorded.Claims["uid-a"]
		if got.State != checkpoint.Lost || got.Results[0].GPU != "GPU-0" || got.Results[0].Instance != nil {
			t.Errorf("the claim is %+v", got)
		}
		if len(o.specs) > 0 || len(o.recorded.MIGModeFoundOff) > 0 {
			t.Errorf("specs %v, modes owed %v", o.specs, o.recorded.MIGModeFoundOff)
		}
	})
	t.Run("kubelet's Prepare makes it again", func(t *testing.T) {
		o, p := booted(t)
		if _, err := p.Prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := o.recorded.Claims["uid-a"].State; got != checkpoint.Prepared || len(o.node.GPUs[0].Instances) != 1 {
			t.Errorf("the claim is %s, instances are %v", got, o.node.GPUs[0].Instances)
		}
	})
	t.Run("a failure leaves it with its GPU", func(t *testing.T) {
		o, p := booted(t)
		o.calls, o.failAt = nil, 4
		if _, err := p.Prepare(t.Context(), c); !errors.Is(err, errInjected) {
			t.Fatalf("Prepare() = %v after %v", err, o.calls)
		}
		if got := o.recorded.Claims["uid-a"].State; got != checkpoint.Lost {
			t.Errorf("the claim is %q", got)
		}
	})
	t.Run("another claim is refused its placement", func(t *testing.T) {
		_, p := booted(t)
		if _, err := p.Prepare(t.Context(), claim("b", device("gpu-0-mig-1g10gb-6"))); !errors.Is(err, ErrRefused) {
			t.Errorf("Prepare() = %v", err)
		}
	})
	t.Run("a name that means another GPU now is refused", func(t *testing.T) {
		o, p := booted(t)
		o.published.GPUs[0].Minor, o.published.GPUs[1].Minor = 1, 0
		if _, err := p.Prepare(t.Context(), c); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "means GPU GPU-1 now") {
			t.Errorf("Prepare() = %v", err)
		}
	})
	t.Run("Unprepare releases it", func(t *testing.T) {
		o, p := booted(t)
		if err := p.Unprepare(t.Context(), "uid-a"); err != nil {
			t.Fatal(err)
		}
		o.clean(t, "nothing")
	})
}

func TestMaintainDestroysWhatNoClaimAccountsFor(t *testing.T) {
	instance := gpu.Instance{Profile: "1g.10gb", Start: 0, Size: 1, GIID: 77, CIID: -1}
	o := newOutside([]gpu.GPU{h100(0, migOn), h100(1, migOn), h100(2, migOn)}, divided(), exclusive())
	o.mustPrepare(t, claim("a", device("gpu-0-mig-1g10gb-6")))
	for i := range o.node.GPUs {
		o.node.GPUs[i].Instances = append(o.node.GPUs[i].Instances, instance)
	}
	o.specs["unknown"], o.shares["unknown"] = nil, nil
	if err := o.preparer().Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := []int{len(o.node.GPUs[0].Instances), len(o.node.GPUs[1].Instances), len(o.node.GPUs[2].Instances), len(o.specs), len(o.shares)}
	// The instances of a GPU that is not published for MIG are somebody else's.
	if diff := cmp.Diff([]int{1, 1, 1, 1, 1}, got); diff != "" {
		t.Errorf("instances of each GPU, specs, shares (-want +got):\n%s", diff)
	}
	if o.node.GPUs[0].Instances[0].Start != 6 {
		t.Errorf("the instance of a prepared claim was destroyed: %v", o.node.GPUs[0].Instances)
	}
}

func TestGone(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	o.mustPrepare(t, claim("a", device("gpu-0", amount("1Gi", "1"))), claim("b", device("gpu-0", amount("1Gi", "1"))), claim("c", device("gpu-0", amount("1Gi", "1"))))
	delete(o.api, "ns/a")
	o.api["ns/b"].UID = "another"
	got, err := o.preparer().Gone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"uid-a", "uid-b"}, got); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
}

func TestAClaimDeletedUnderItsPodIsNotGone(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	o.mustPrepare(t, claim("a", device("gpu-0", amount("1Gi", "1"))), claim("b", device("gpu-0", amount("1Gi", "1"))))
	clear(o.api)
	o.users = map[string]string{"ns/a": "ns/pod"}
	got, err := o.preparer().Gone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"uid-b"}, got); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
}

func TestFilesThatSomebodyRemovedAreWrittenAnew(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0), h100(1)}, divided(), shared())
	o.mustPrepare(t, claim("a", device("gpu-0-mig-1g10gb-6"), device("gpu-1", amount("1Gi", "1"))), claim("b", device("gpu-1", admin)))
	wantSpecs, wantShares := maps.Clone(o.specs), maps.Clone(o.shares)
	clear(o.specs)
	clear(o.shares)
	if err := o.preparer().Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantSpecs, o.specs); diff != "" {
		t.Errorf("specs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantShares, o.shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	o.calls = nil
	if err := o.preparer().Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"look", "place library"}, o.calls); diff != "" {
		t.Errorf("calls where nothing is missing (-want +got):\n%s", diff)
	}
}

func TestACallThatKubeletHasGivenUpOnIsNotCarriedOut(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.preparer().Prepare(ctx, claim("a", device("gpu-0", amount("1Gi", "1")))); !errors.Is(err, context.Canceled) {
		t.Errorf("Prepare() = %v", err)
	}
	if len(o.calls) > 0 {
		t.Errorf("calls %v", o.calls)
	}
}
