// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/mps"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// mpsDoor has the daemons in memory, by device.
type mpsDoor struct {
	clients map[string][]string
	fails   error
}

func (d *mpsDoor) Running(device string) bool { return len(d.clients[device]) > 0 }

func (d *mpsDoor) Serve(_ context.Context, c mps.Client) error {
	if d.fails != nil {
		return d.fails
	}
	if d.clients == nil {
		d.clients = map[string][]string{}
	}
	if !slices.Contains(d.clients[c.Device], c.ClaimUID) {
		d.clients[c.Device] = append(d.clients[c.Device], c.ClaimUID)
	}
	return nil
}

func (*mpsDoor) Access(c mps.Client, shareDir string) (mps.Access, error) {
	return mps.Access{
		Env: []string{"PIPE=" + shareDir}, Mounts: []mps.Mount{{HostPath: "/mps/" + c.Device, ContainerPath: shareDir + "/mps"}},
	}, nil
}

func (d *mpsDoor) Keep(_ context.Context, clients []mps.Client) error {
	d.clients = nil
	for _, c := range clients {
		if err := d.Serve(context.Background(), c); err != nil {
			return err
		}
	}
	return nil
}

func byServer() v1alpha1.GPUDecision {
	d := shared()
	d.Sharing = v1alpha1.SharingMPS
	return d
}

func request(name string) change {
	return func(r *resourceapi.DeviceRequestAllocationResult) { r.Request = name }
}

func TestASharedByMPS(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, byServer())
	first, second := claim("first", device("gpu-0", amount("10Gi", "30"))), claim("second", device("gpu-0", amount("10Gi", "0")))
	o.mustPrepare(t, first, second)
	if diff := cmp.Diff(map[string][]string{"GPU-0": {"uid-first", "uid-second"}}, o.mps.clients); diff != "" {
		t.Errorf("clients differ (-want +got):\n%s", diff)
	}
	if got := o.shares["uid-first"][0].Enforce; got != limits.EnforceMemory {
		t.Errorf("the library is to hold %b, want memory alone", got)
	}
	grant := o.specs["uid-first"][0]
	if diff := cmp.Diff([]string{"PIPE=/run/sluice/uid-first/0"}, grant.Env); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
	if last := grant.Mounts[len(grant.Mounts)-1]; last != (Mount{HostPath: "/mps/GPU-0", ContainerPath: "/run/sluice/uid-first/0/mps"}) {
		t.Errorf("got the mount %+v", last)
	}
	want := []mps.Client{
		{ClaimUID: "uid-first", Device: "GPU-0", Driver: "580", MemoryMiB: 10240, Percent: 30},
		{ClaimUID: "uid-second", Device: "GPU-0", Driver: "580", MemoryMiB: 10240},
	}
	if diff := cmp.Diff(want, MPSClients(o.recorded)); diff != "" {
		t.Errorf("clients of the record differ (-want +got):\n%s", diff)
	}

	for uid, left := range map[string]int{"uid-first": 1, "uid-second": 0} {
		if uid == "uid-second" {
			continue
		}
		if err := o.preparer().Unprepare(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		if got := len(o.mps.clients["GPU-0"]); got != left {
			t.Errorf("%d clients are left after %s, want %d", got, uid, left)
		}
	}
	if err := o.preparer().Unprepare(t.Context(), "uid-second"); err != nil {
		t.Fatal(err)
	}
	if len(o.mps.clients) != 0 {
		t.Errorf("the daemon is left with %v", o.mps.clients)
	}
}

func TestWhatMPSCannotHold(t *testing.T) {
	for _, tc := range []struct {
		name   string
		claim  *resourceapi.ResourceClaim
		change func(o *outside)
		want   string
	}{
		{
			name:   "a device with a process that MPS would not hold is refused",
			claim:  claim("c", device("gpu-0", amount("10Gi", "30"))),
			change: func(o *outside) { o.holders = []nvml.Holder{{PID: 77, GIID: -1}} },
			want:   "gpu-0 is to be shared by MPS, but processes [77] are on it that MPS would not hold; it is tried again",
		},
		{
			name:   "a request for two devices is refused, since a process has one daemon",
			claim:  claim("c", device("gpu-0", amount("10Gi", "30")), device("gpu-1", amount("10Gi", "30"))),
			change: func(*outside) {},
			want:   "request gpu was given gpu-0 and gpu-1, both shared by MPS",
		},
		{
			name:   "a daemon that does not start fails the claim",
			claim:  claim("c", device("gpu-0", amount("10Gi", "30"))),
			change: func(o *outside) { o.mps.fails = errors.New("no program") },
			want:   "sharing gpu-0 by MPS: no program",
		},
		{
			name:   "two requests may have a device each",
			claim:  claim("c", device("gpu-0", amount("10Gi", "30")), device("gpu-1", amount("10Gi", "30"), request("other"))),
			change: func(*outside) {},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutside([]gpu.GPU{h100(0), h100(1)}, byServer(), byServer())
			tc.change(o)
			_, err := o.preparer().Prepare(t.Context(), tc.claim)
			switch {
			case tc.want == "" && err != nil:
				t.Fatal(err)
			case tc.want == "":
				return
			case err == nil || !strings.Contains(err.Error(), tc.want):
				t.Errorf("got %v, want %q", err, tc.want)
			case len(o.recorded.Claims) != 0 || len(o.specs) != 0 || len(o.shares) != 0:
				t.Errorf("something is left: %+v %v %v", o.recorded.Claims, o.specs, o.shares)
			}
		})
	}
}

func TestAShareOfAnInstanceIsAPartOfTheInstance(t *testing.T) {
	r := checkpoint.Result{
		Index: 2, GPU: "GPU-0", Device: "gpu-0-mig-1g10gb-0", MPS: true, Shared: true, Memory: 4 << 30, Compute: 7, DeviceCompute: 14,
		Standing: true, Placement: &checkpoint.Placement{Profile: "1g.10gb", Size: 1}, Instance: &checkpoint.Instance{UUID: "MIG-1"},
	}
	want := mps.Client{ClaimUID: "uid", Index: 2, Device: "MIG-1", Driver: "615.1", MemoryMiB: 4096, Percent: 50}
	if diff := cmp.Diff(want, mpsClient("uid", r, "615.1")); diff != "" {
		t.Errorf("client differs (-want +got):\n%s", diff)
	}
}
