// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// place is one instance as a test wants to see it.
type place struct {
	Profile     string
	Start, Size int
	Filled      bool
}

func places(g gpu.GPU) []place {
	var out []place
	for _, i := range g.Instances {
		out = append(out, place{i.Profile, i.Start, i.Size, i.CIID >= 0 && strings.HasPrefix(i.UUID, "MIG-")})
	}
	return out
}

func wantPlaces(t *testing.T, door *nvml.Door, want ...place) {
	t.Helper()
	if diff := cmp.Diff(want, places(look(t, door).GPUs[0])); diff != "" {
		t.Errorf("instances differ (-want +got):\n%s", diff)
	}
}

// create makes an instance with its compute instance and returns its id and UUID.
func create(t *testing.T, door *nvml.Door, uuid, profile string, start int) (giID int, migUUID string) {
	t.Helper()
	giID, err := door.CreateGPUInstance(t.Context(), uuid, gpu.Placement{Profile: profile, Start: start})
	if err != nil {
		t.Fatal(err)
	}
	_, migUUID, err = door.CreateComputeInstance(t.Context(), uuid, giID)
	if err != nil {
		t.Fatal(err)
	}
	return giID, migUUID
}

// at is a placement.
func at(profile string, start int) gpu.Placement {
	return gpu.Placement{Profile: profile, Start: start}
}

func TestInstancesComeAndGo(t *testing.T) {
	for _, tc := range []struct {
		name  string
		board string
		make  []gpu.Placement
		want  []place
	}{
		{
			name: "seven small instances fit on an A100", board: "a100-80gb",
			make: []gpu.Placement{at("1g.10gb", 6), at("1g.10gb", 4), at("1g.10gb", 5), at("1g.10gb", 0), at("1g.10gb", 1), at("1g.10gb", 2), at("1g.10gb", 3)},
			want: []place{
				{"1g.10gb", 0, 1, true}, {"1g.10gb", 1, 1, true}, {"1g.10gb", 2, 1, true}, {"1g.10gb", 3, 1, true},
				{"1g.10gb", 4, 1, true}, {"1g.10gb", 5, 1, true}, {"1g.10gb", 6, 1, true},
			},
		},
		{
			name: "a half fits beside three small instances", board: "a100-80gb",
			make: []gpu.Placement{at("1g.10gb", 6), at("1g.10gb", 4), at("1g.10gb", 5), at("3g.40gb", 0)},
			want: []place{{"3g.40gb", 0, 4, true}, {"1g.10gb", 4, 1, true}, {"1g.10gb", 5, 1, true}, {"1g.10gb", 6, 1, true}},
		},
		{
			name: "the whole board is one instance", board: "h100-80gb",
			make: []gpu.Placement{at("7g.80gb", 0)},
			want: []place{{"7g.80gb", 0, 8, true}},
		},
		{
			name: "media engines and double memory are profiles of their own", board: "h100-80gb",
			make: []gpu.Placement{at("1g.10gb+me", 0), at("1g.20gb", 6)},
			want: []place{{"1g.10gb+me", 0, 1, true}, {"1g.20gb", 6, 2, true}},
		},
		{
			name: "an A30 divides into four", board: "a30-24gb",
			make: []gpu.Placement{at("2g.12gb", 2), at("1g.6gb", 0)},
			want: []place{{"1g.6gb", 0, 1, true}, {"2g.12gb", 2, 2, true}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := fakenode.New(t, fakenode.Boards{Board: tc.board, Count: 1, MIG: true})
			door := open(t, node)
			uuid := look(t, door).GPUs[0].UUID
			uuids := map[string]bool{}
			for _, p := range tc.make {
				_, migUUID := create(t, door, uuid, p.Profile, p.Start)
				uuids[migUUID] = true
			}
			if len(uuids) != len(tc.make) {
				t.Errorf("%d instances have %d UUIDs", len(tc.make), len(uuids))
			}
			wantPlaces(t, door, tc.want...)
			for _, i := range look(t, door).GPUs[0].Instances {
				if !uuids[i.UUID] {
					t.Errorf("instance %+v was created under another UUID", i)
				}
				// The second time there is nothing left.
				for range 2 {
					if err := door.DestroyInstance(t.Context(), uuid, i.GIID); err != nil {
						t.Error(err)
					}
				}
			}
			wantPlaces(t, door)
			if left := node.Show(t).GPUs[0].Instances; len(left) != 0 {
				t.Errorf("the hardware still has %+v", left)
			}
		})
	}
}

func TestTheWholeBoardGetsTheOrdinaryComputeInstance(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "a100-80gb", Count: 1, MIG: true})
	door := open(t, node)
	uuid := look(t, door).GPUs[0].UUID
	giID, _ := create(t, door, uuid, "7g.80gb", 0)
	// The instance is full: nothing of it was left to a compute instance of another kind.
	if _, _, err := door.CreateComputeInstance(t.Context(), uuid, giID); !errors.Is(err, nvml.ErrNoRoom) {
		t.Errorf("a second compute instance: %v, want %v", err, nvml.ErrNoRoom)
	}
	wantPlaces(t, door, place{"7g.80gb", 0, 8, true})
}

func TestCreateRefuses(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 2, MIG: true}, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	gpus := look(t, door).GPUs
	create(t, door, gpus[0].UUID, "3g.40gb", 4)
	for _, tc := range []struct {
		name      string
		gpu       string
		placement gpu.Placement
		want      error
	}{
		{name: "an overlap", gpu: gpus[0].UUID, placement: gpu.Placement{Profile: "1g.10gb", Start: 6}, want: nvml.ErrNoRoom},
		{name: "the same placement again", gpu: gpus[0].UUID, placement: gpu.Placement{Profile: "3g.40gb", Start: 4}, want: nvml.ErrNoRoom},
		{name: "a start the profile does not have", gpu: gpus[0].UUID, placement: gpu.Placement{Profile: "3g.40gb", Start: 1}, want: nvml.ErrBadPlacement},
		{name: "a profile the board does not have", gpu: gpus[0].UUID, placement: gpu.Placement{Profile: "1g.5gb"}, want: nvml.ErrBadPlacement},
		{name: "a GPU the node does not have", gpu: "GPU-00000000-0000-0000-0000-000000000000", placement: gpu.Placement{Profile: "1g.10gb"}, want: nvml.ErrGPUNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := door.CreateGPUInstance(t.Context(), tc.gpu, tc.placement); !errors.Is(err, tc.want) {
				t.Errorf("CreateGPUInstance answers %v, want %v", err, tc.want)
			}
			wantPlaces(t, door, place{"3g.40gb", 4, 4, true})
		})
	}
	t.Run("a GPU with MIG mode off", func(t *testing.T) {
		_, err := door.CreateGPUInstance(t.Context(), gpus[2].UUID, gpu.Placement{Profile: "1g.10gb"})
		var call *nvml.CallError
		if !errors.As(err, &call) {
			t.Errorf("CreateGPUInstance answers %v, want NVML's answer", err)
		}
	})
}

func TestAnInstanceWithoutComputeInstanceIsSeen(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true})
	door := open(t, node)
	uuid := look(t, door).GPUs[0].UUID
	giID, err := door.CreateGPUInstance(t.Context(), uuid, gpu.Placement{Profile: "2g.20gb", Start: 2})
	if err != nil {
		t.Fatal(err)
	}
	got := look(t, door).GPUs[0].Instances
	want := []gpu.Instance{{Profile: "2g.20gb", Start: 2, Size: 2, GIID: giID, CIID: -1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances differ (-want +got):\n%s", diff)
	}
	if err := door.DestroyInstance(t.Context(), uuid, giID); err != nil {
		t.Fatal(err)
	}
	wantPlaces(t, door)
}

func TestFailuresLeaveNothingBehind(t *testing.T) {
	for _, tc := range []struct {
		name string
		call string
		want []place
	}{
		{name: "the GPU instance is refused", call: "nvmlDeviceCreateGpuInstanceWithPlacement"},
		{name: "the new GPU instance does not tell its id", call: "nvmlGpuInstanceGetInfo"},
		{name: "the compute instance is refused", call: "nvmlGpuInstanceCreateComputeInstance", want: []place{{"1g.10gb", 3, 1, false}}},
		{name: "the compute instance does not tell its id", call: "nvmlComputeInstanceGetInfo_v2", want: []place{{"1g.10gb", 3, 1, false}}},
		{name: "the MIG device does not tell its UUID", call: "nvmlDeviceGetMigDeviceHandleByIndex", want: []place{{"1g.10gb", 3, 1, false}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true})
			door := open(t, node)
			uuid := look(t, door).GPUs[0].UUID
			node.Fault(t, tc.call, "NVML_ERROR_UNKNOWN", 0)
			giID, err := door.CreateGPUInstance(t.Context(), uuid, gpu.Placement{Profile: "1g.10gb", Start: 3})
			if err == nil {
				_, _, err = door.CreateComputeInstance(t.Context(), uuid, giID)
			}
			var call *nvml.CallError
			if !errors.As(err, &call) || call.Return != 999 || strings.TrimSuffix(tc.call, "_v2") != call.Call || !strings.Contains(err.Error(), uuid) {
				t.Errorf("the failure is %v, want one of %s that names the GPU", err, tc.call)
			}
			wantPlaces(t, door, tc.want...)
		})
	}
}

func TestDestroyWaitsForProcesses(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true})
	door := open(t, node)
	uuid := look(t, door).GPUs[0].UUID
	giID, _ := create(t, door, uuid, "1g.10gb", 0)
	pid := strconv.Itoa(os.Getpid())
	node.CLI(t, "attach", "--gpu", "0", "--instance", "1g.10gb:0", "--pid", pid, "--memory", "100")

	err := door.DestroyInstance(t.Context(), uuid, giID)
	if !errors.Is(err, nvml.ErrInUse) || !strings.Contains(err.Error(), pid) {
		t.Errorf("DestroyInstance answers %v, want an ErrInUse that names process %s", err, pid)
	}
	wantPlaces(t, door, place{"1g.10gb", 0, 1, true})

	node.CLI(t, "detach", "--pid", pid)
	if err := door.DestroyInstance(t.Context(), uuid, giID); err != nil {
		t.Fatal(err)
	}
	wantPlaces(t, door)
}

func TestDestroyWithMIGModeOffHasNothingToDo(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	if err := door.DestroyInstance(t.Context(), look(t, door).GPUs[0].UUID, 1); err != nil {
		t.Error(err)
	}
}

func TestMIGModeOnHopper(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	uuid := look(t, door).GPUs[0].UUID
	set := func(on bool) error { return door.SetMIGMode(t.Context(), uuid, on) }
	wantMode := func(want gpu.MIGMode) {
		t.Helper()
		if got := look(t, door).GPUs[0].MIGMode; got != want {
			t.Errorf("MIG mode is %s, want %s", got, want)
		}
	}
	for range 2 { // The second time it is on already.
		if err := set(true); err != nil {
			t.Fatal(err)
		}
		wantMode(gpu.MIGEnabled)
	}
	giID, _ := create(t, door, uuid, "1g.10gb", 0)
	if err := set(false); !errors.Is(err, nvml.ErrInUse) {
		t.Errorf("switching off below an instance: %v, want %v", err, nvml.ErrInUse)
	}
	wantMode(gpu.MIGEnabled)
	if mode := node.Show(t).GPUs[0].MIGMode; mode.Current != mode.Pending {
		t.Errorf("the refused mode is still pending: %+v", mode)
	}
	if err := door.DestroyInstance(t.Context(), uuid, giID); err != nil {
		t.Fatal(err)
	}
	if err := set(false); err != nil {
		t.Fatal(err)
	}
	wantMode(gpu.MIGDisabled)
}

func TestMIGModeOnAmpereNeedsAReset(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "a100-80gb", Count: 1})
	door := open(t, node)
	g := look(t, door).GPUs[0]
	if g.MIGModeSwitchable {
		t.Error("an Ampere board is said to be switchable")
	}
	for range 2 { // Asking again changes nothing.
		if err := door.SetMIGMode(t.Context(), g.UUID, true); !errors.Is(err, nvml.ErrResetRequired) {
			t.Errorf("SetMIGMode answers %v, want %v", err, nvml.ErrResetRequired)
		}
		if got := look(t, door).GPUs[0].MIGMode; got != gpu.MIGDisabled {
			t.Errorf("MIG mode is %s before the reset", got)
		}
	}
	node.CLI(t, "reset", "--gpu", "0")
	if got := look(t, door).GPUs[0].MIGMode; got != gpu.MIGEnabled {
		t.Errorf("MIG mode is %s after the reset", got)
	}
}

func TestWorkOnOneGPULeavesOthersAlone(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 2, MIG: true})
	door := open(t, node)
	gpus := look(t, door).GPUs
	// GPU 0 takes its time; meanwhile whoever wants it waits no longer than its context, and GPU 1 works.
	node.CLI(t, "fault", "--call", "nvmlDeviceCreateGpuInstanceWithPlacement", "--gpu", "0", "--delay-ms", "2000")
	slow := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		_, err := door.CreateGPUInstance(context.WithoutCancel(t.Context()), gpus[0].UUID, gpu.Placement{Profile: "1g.10gb"})
		slow <- err
	}()
	<-started
	create(t, door, gpus[1].UUID, "1g.10gb", 0)
	select {
	case err := <-slow:
		t.Errorf("GPU 0 was done before GPU 1 (%v)", err)
	default:
	}
	if err := <-slow; err != nil {
		t.Error(err)
	}
}
