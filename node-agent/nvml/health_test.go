// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestVitals(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	uuid := look(t, door).GPUs[0].UUID
	well := health.Vitals{Recovery: health.RecoveryNone, Remaps: true}
	for _, tc := range []struct {
		name string
		args []string
		want health.Vitals
	}{
		{name: "nothing is wrong", want: well},
		{
			name: "the driver wants a reset", args: []string{"--recovery", "reset"},
			want: health.Vitals{Recovery: health.RecoveryReset, Remaps: true},
		},
		{
			name: "the driver wants a reboot", args: []string{"--recovery", "reboot"},
			want: health.Vitals{Recovery: health.RecoveryReboot, Remaps: true},
		},
		{
			name: "the driver wants the traffic to other GPUs to end", args: []string{"--recovery", "drain-p2p"},
			want: health.Vitals{Recovery: health.RecoveryDrain, Remaps: true},
		},
		{
			name: "a row is to be remapped, and memory had errors", args: []string{"--recovery", "none", "--remap", "pending", "--ecc", "2"},
			want: health.Vitals{Recovery: health.RecoveryNone, Remaps: true, RemapPending: true, Uncorrected: 2},
		},
		{
			name: "there are no spare rows", args: []string{"--remap", "failed", "--ecc", "0"},
			want: health.Vitals{Recovery: health.RecoveryNone, Remaps: true, RemapFailed: true},
		},
		{
			name: "it is too hot", args: []string{"--remap", "none", "--brake", "thermal"},
			want: health.Vitals{Recovery: health.RecoveryNone, Remaps: true, ThermalBrake: true},
		},
		{
			name: "the power supply brakes", args: []string{"--brake", "power"},
			want: health.Vitals{Recovery: health.RecoveryNone, Remaps: true, PowerBrake: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.args != nil {
				node.CLI(t, "health", append([]string{"--gpu", "0"}, tc.args...)...)
			}
			got, err := door.Vitals(t.Context(), uuid)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("vitals (-want +got):\n%s", diff)
			}
		})
	}
	node.CLI(t, "fault", "--lost", "--gpu", "0")
	if _, err := door.Vitals(t.Context(), uuid); !errors.Is(err, nvml.ErrLost) {
		t.Errorf("the vitals of a lost GPU: %v", err)
	}
}

func TestADriverThatDoesNotKnowTheRecoveryAction(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	uuid := look(t, door).GPUs[0].UUID
	node.Fault(t, "nvmlDeviceGetFieldValues", "NVML_ERROR_NOT_SUPPORTED", 0)
	got, err := door.Vitals(t.Context(), uuid)
	if err != nil || got.Recovery != health.RecoveryUnknown {
		t.Errorf("recovery %v, %v", got.Recovery, err)
	}
}

func TestVirtualGPUs(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 3})
	node.CLI(t, "health", "--gpu", "1", "--virtual", "licensed")
	node.CLI(t, "health", "--gpu", "2", "--virtual", "unlicensed")
	var got []gpu.Licence
	for _, g := range look(t, open(t, node)).GPUs {
		got = append(got, g.Licence)
	}
	if diff := cmp.Diff([]gpu.Licence{"", gpu.Licensed, gpu.Unlicensed}, got); diff != "" {
		t.Errorf("licences (-want +got):\n%s", diff)
	}
}

func TestEvents(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 2}, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true})
	door := open(t, node)
	gpus := look(t, door).GPUs
	gi, err := door.CreateGPUInstance(t.Context(), gpus[2].UUID, gpu.Placement{Profile: "3g.40gb", Start: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := door.CreateComputeInstance(t.Context(), gpus[2].UUID, gi); err != nil {
		t.Fatal(err)
	}
	events, err := door.Events(t.Context(), []string{gpus[0].UUID, gpus[2].UUID})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	node.CLI(t, "xid", "--gpu", "1", "--xid", "13")
	node.CLI(t, "xid", "--gpu", "0", "--xid", "79")
	node.CLI(t, "xid", "--gpu", "2", "--xid", "31", "--instance", "3g.40gb:4")
	for _, want := range []nvml.Event{
		{UUID: gpus[0].UUID, XID: 79, GIID: -1, CIID: -1},
		{UUID: gpus[2].UUID, XID: 31, GIID: gi, CIID: 0},
	} {
		got := next(t, events)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
	if _, came, err := events.Wait(time.Millisecond); came || err != nil {
		t.Errorf("after the last event: %v, %v", came, err)
	}
	door.Close()
	if _, _, err := events.Wait(time.Millisecond); err == nil {
		t.Error("events come through a closed door")
	}
}

// next is the next event, past those of GPUs that nobody listens to.
func next(t *testing.T, events *nvml.Events) nvml.Event {
	t.Helper()
	for range 100 {
		event, came, err := events.Wait(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if came {
			return event
		}
	}
	t.Fatal("no event comes")
	return nvml.Event{}
}

func TestACallThatHangs(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 2})
	library, err := nvml.FindLibrary(node.Root)
	if err != nil {
		t.Fatal(err)
	}
	const deadline = 300 * time.Millisecond
	door, err := nvml.Open(library, nvml.WithDeadline(deadline))
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	gpus := look(t, door).GPUs
	node.CLI(t, "fault", "--hang", "--gpu", "1")
	defer node.CLI(t, "fault", "--clear")

	got, err := door.Look(t.Context())
	if !errors.Is(err, nvml.ErrSick) || !errors.Is(err, nvml.ErrHangs) {
		t.Errorf("the look says %v", err)
	}
	var sick *nvml.SickGPUError
	if !errors.As(err, &sick) || sick.UUID != gpus[1].UUID {
		t.Errorf("the sick GPU is %+v, want %s", sick, gpus[1].UUID)
	}
	if len(got.GPUs) != 1 || got.GPUs[0].UUID != gpus[0].UUID {
		t.Errorf("the look shows %d GPUs, want the other one", len(got.GPUs))
	}
	if _, err := door.Vitals(t.Context(), gpus[1].UUID); !errors.Is(err, nvml.ErrHangs) {
		t.Errorf("vitals of the GPU that hangs: %v", err)
	}
	// Those that come later do not wait, and pile up no further.
	start := time.Now()
	for range 10 {
		if _, err := door.Holders(t.Context(), gpus[1].UUID); !errors.Is(err, nvml.ErrHangs) {
			t.Errorf("holders of the GPU that hangs: %v", err)
		}
	}
	if took := time.Since(start); took > deadline {
		t.Errorf("10 calls about a GPU that hangs took %v", took)
	}
	if _, err := door.Vitals(t.Context(), gpus[0].UUID); err != nil {
		t.Errorf("vitals of the other GPU: %v", err)
	}

	node.CLI(t, "fault", "--clear")
	within(t, "the GPU to come back", func() bool {
		all, err := door.Look(t.Context())
		return err == nil && len(all.GPUs) == 2
	})
}

func within(t *testing.T, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !happened(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s took too long", what)
		}
	}
}

func TestNVMLHangsAsAWhole(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	library, err := nvml.FindLibrary(node.Root)
	if err != nil {
		t.Fatal(err)
	}
	door, err := nvml.Open(library, nvml.WithDeadline(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	node.CLI(t, "fault", "--hang", "--call", "nvmlDeviceGetCount_v2")
	// The library is the process's: the next test must find it closed.
	defer within(t, "NVML to be closed", func() bool { return !door.Closing() })
	defer node.CLI(t, "fault", "--clear")
	if _, err := door.Look(t.Context()); !errors.Is(err, nvml.ErrHangs) || errors.Is(err, nvml.ErrSick) {
		t.Errorf("the look says %v", err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		door.Close()
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the hanging call keeps the door from being closed")
	}
}
