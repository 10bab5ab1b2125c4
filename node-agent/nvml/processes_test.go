// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func wantProcesses(t *testing.T, door *nvml.Door, gpu, device string, want ...nvml.Process) {
	t.Helper()
	got, err := door.Processes(t.Context(), gpu, device)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes on %s (-want +got):\n%s", device, diff)
	}
}

func TestProcesses(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true})
	door := open(t, node)
	gpus := look(t, door).GPUs
	whole, divided := gpus[0].UUID, gpus[1].UUID
	pid := os.Getpid()
	_, first := create(t, door, divided, "1g.10gb", 0)
	giID, second := create(t, door, divided, "1g.10gb", 1)
	node.CLI(t, "attach", "--gpu", "0", "--pid", strconv.Itoa(pid), "--memory", "700")
	node.CLI(t, "attach", "--gpu", "1", "--instance", "1g.10gb:1", "--pid", strconv.Itoa(pid), "--memory", "300")
	wantProcesses(t, door, whole, whole, nvml.Process{PID: pid, Bytes: 700 * mib})
	wantProcesses(t, door, divided, first)
	wantProcesses(t, door, divided, second, nvml.Process{PID: pid, Bytes: 300 * mib})

	node.CLI(t, "detach", "--pid", strconv.Itoa(pid), "--gpu", "0")
	node.CLI(t, "attach", "--gpu", "0", "--pid", strconv.Itoa(pid), "--memory", "0")
	wantProcesses(t, door, whole, whole) // a process without a figure is not one that holds nothing
	figures, err := door.Figures(t.Context(), whole, whole)
	if diff := cmp.Diff([]nvml.Figure{{PID: pid}}, figures); err != nil || diff != "" {
		t.Errorf("figures (-want +got):\n%s%v", diff, err)
	}

	node.CLI(t, "detach", "--pid", strconv.Itoa(pid))
	if err := door.DestroyInstance(t.Context(), divided, giID); err != nil {
		t.Fatal(err)
	}
	if _, err := door.Processes(t.Context(), divided, second); !errors.Is(err, nvml.ErrGPUNotFound) {
		t.Errorf("processes on a device that is gone: %v, want ErrGPUNotFound", err)
	}
	node.Fault(t, "nvmlDeviceGetComputeRunningProcesses_v3", "NVML_ERROR_UNKNOWN", 0)
	if _, err := door.Processes(t.Context(), whole, whole); err == nil {
		t.Error("a call that failed is no empty list")
	}
}
