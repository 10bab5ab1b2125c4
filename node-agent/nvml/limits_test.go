// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/cgroupfs"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// limited is a node whose driver keeps memory limits, with its door and the UUID of its GPU.
func limited(t *testing.T, version, backend string) (*fakenode.Node, *nvml.Door, string, *cgroupfs.FS) {
	t.Helper()
	fs := cgroupfs.New(t, backend == "dmem")
	node := fakenode.With(t, fakenode.Driver{Version: version, Cgroups: fs.Root, Limits: backend}, fakenode.Boards{Board: "h200-141gb", Count: 1})
	door, err := nvml.Open(node.Library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(door.Close)
	return node, door, node.Show(t).GPUs[0].UUID, fs
}

func TestMemoryLimitsAreSetAndTold(t *testing.T) {
	for _, backend := range []string{"dmem", "misc"} {
		t.Run(backend, func(t *testing.T) {
			_, door, gpu, fs := limited(t, "615.71.09", backend)
			fs.Make(t, cgroupfs.Pod)
			path := filepath.Join(fs.Root, cgroupfs.Pod)
			if err := door.SetMemoryLimits(t.Context(), gpu, path, 1<<30, 2<<30); err != nil {
				t.Fatal(err)
			}
			got, err := door.MemoryLimits(t.Context(), gpu, path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(nvml.MemoryLimits{Soft: 1 << 30, Hard: 2 << 30}, got); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTheDriverAnswersIsAnErrorOfItsKind(t *testing.T) {
	for _, tc := range []struct {
		name, version, backend, cgroup string
		soft, hard                     uint64
		answer                         string
		want                           error
	}{
		{name: "an old driver", version: "580.159.04", backend: "misc", cgroup: cgroupfs.Pod, hard: 1, want: nvml.ErrLimitsUnsupported},
		{name: "a cgroup that is not there", version: "615.1", backend: "misc", cgroup: "/none", hard: 1, want: nvml.ErrNoSuchCgroup},
		{name: "no controller", version: "615.1", backend: "dmem", cgroup: "/", hard: 1, want: nvml.ErrNoController},
		{name: "soft above hard", version: "615.1", backend: "misc", cgroup: cgroupfs.Pod, soft: 2, hard: 1, want: nvml.ErrLimitsRefused},
		{name: "more than there is", version: "615.1", backend: "misc", cgroup: cgroupfs.Pod, hard: 1 << 50, want: nvml.ErrLimitsRefused},
		{name: "no permission", version: "615.1", backend: "misc", cgroup: cgroupfs.Pod, hard: 1, answer: "NVML_ERROR_NO_PERMISSION", want: nvml.ErrLimitsRefused},
		{name: "a lost GPU", version: "615.1", backend: "misc", cgroup: cgroupfs.Pod, hard: 1, answer: "NVML_ERROR_GPU_IS_LOST", want: nvml.ErrLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node, door, gpu, fs := limited(t, tc.version, tc.backend)
			fs.Make(t, cgroupfs.Pod)
			if tc.answer != "" {
				node.Fault(t, "nvmlDeviceSetMemoryLimits_v1", tc.answer, 0)
			}
			err := door.SetMemoryLimits(t.Context(), gpu, filepath.Join(fs.Root, tc.cgroup), tc.soft, tc.hard)
			if !errors.Is(err, tc.want) {
				t.Errorf("SetMemoryLimits() = %v, want %v", err, tc.want)
			}
		})
	}
}

// TestTheMapOfTheDriverKnowsOnlyWhatWasSet is how the two backends are told apart.
func TestTheMapOfTheDriverKnowsOnlyWhatWasSet(t *testing.T) {
	for backend, want := range map[string]error{"dmem": nil, "misc": nvml.ErrLimitsUnsupported} {
		t.Run(backend, func(t *testing.T) {
			_, door, gpu, fs := limited(t, "615.71.09", backend)
			fs.Make(t, cgroupfs.Pod)
			if _, err := door.MemoryLimits(t.Context(), gpu, filepath.Join(fs.Root, cgroupfs.Pod)); !errors.Is(err, want) {
				t.Errorf("MemoryLimits() = %v, want %v", err, want)
			}
		})
	}
}
