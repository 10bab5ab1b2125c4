// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
)

func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		name, version, backend string
		change                 func(t *testing.T, r *rig)
		want                   memlimits.Answer
		found                  v1alpha1.LimitsBackend
		says                   string
	}{
		{name: "the kernel's controller is told from", version: "615.71.09", backend: "dmem", want: memlimits.Works, found: v1alpha1.LimitsBackendDmem},
		{name: "the driver's own map", version: "615.71.09", backend: "misc", want: memlimits.Works, found: v1alpha1.LimitsBackendMisc},
		{name: "an old driver has none", version: "580.159.04", backend: "dmem", want: memlimits.Unsupported},
		{name: "nor has a node with cgroup v1", version: "615.71.09", backend: "dmem", want: memlimits.NoCgroupV2, change: func(t *testing.T, r *rig) {
			t.Helper()
			if err := os.Remove(filepath.Join(r.fs.Root, "cgroup.controllers")); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a cgroup that a killed agent left does not matter", version: "615.71.09", backend: "misc", want: memlimits.Works,
			found: v1alpha1.LimitsBackendMisc, change: func(t *testing.T, r *rig) {
				t.Helper()
				path := filepath.Join(r.fs.Root, "sluice-limits")
				if err := os.Mkdir(path, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := r.door.SetMemoryLimits(t.Context(), r.gpu, path, 0, gib); err != nil {
					t.Fatal(err)
				}
				untilLater(t, path)
			}},
		{name: "without the controller in the root it is refused", version: "615.71.09", backend: "dmem", want: memlimits.Refused, says: "+dmem",
			change: func(t *testing.T, r *rig) {
				t.Helper()
				if err := os.Remove(filepath.Join(r.fs.Root, "cgroup.subtree_control")); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "a refusal is one", version: "615.71.09", backend: "misc", want: memlimits.Refused, says: "Insufficient Permissions",
			change: func(t *testing.T, r *rig) {
				t.Helper()
				r.node.Fault(t, "nvmlDeviceSetMemoryLimits_v1", "NVML_ERROR_NO_PERMISSION", 0)
			}},
		{name: "a GPU that does not answer has said nothing", version: "615.71.09", backend: "misc", want: memlimits.Unasked,
			change: func(t *testing.T, r *rig) {
				t.Helper()
				r.node.Fault(t, "nvmlDeviceSetMemoryLimits_v1", "NVML_ERROR_UNKNOWN", 0)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.version, tc.backend)
			if tc.change != nil {
				tc.change(t, r)
			}
			got := r.Probe(t.Context(), r.facts)
			if got.Answer != tc.want || got.Backend != tc.found || !strings.Contains(got.Message, tc.says) {
				t.Errorf("Probe() = %+v, want %q by %q", got, tc.want, tc.found)
			}
			r.expect(t, "after it was tried", map[string]bounds{})
		})
	}
}

// untilLater waits until what is made anew is younger than a directory, by the clock of the file system: plain directories can
// have the numbers of those that were removed.
func untilLater(t *testing.T, dir string) {
	t.Helper()
	made, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	probe := filepath.Join(t.TempDir(), "file")
	for {
		if err := os.WriteFile(probe, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if now, err := os.Stat(probe); err != nil || now.ModTime().After(made.ModTime()) {
			return
		}
	}
}

func TestFindingsAreKept(t *testing.T) {
	r := newRig(t, "615.71.09", "misc")
	r.node.Fault(t, "nvmlDeviceSetMemoryLimits_v1", "NVML_ERROR_NO_PERMISSION", 0)
	for _, want := range []memlimits.Answer{memlimits.Refused, memlimits.Refused, memlimits.Works, memlimits.Works} {
		if got := r.Probe(t.Context(), r.facts).Answer; got != want {
			t.Errorf("Probe() = %s, want %s", got, want)
		}
		r.clock.Step(6 * time.Minute)
	}
	if held := r.HeldBy(t.Context(), software(v1alpha1.MemoryLimitsInterceptor), r.facts); held.Reason != v1alpha1.ReasonPoolDecides {
		t.Errorf("a pool of the library's is %+v", held)
	}
	if held := r.HeldBy(t.Context(), software(""), r.facts); held.HeldBy != v1alpha1.MemoryLimitsDriver || held.Backend != v1alpha1.LimitsBackendMisc {
		t.Errorf("another is %+v", held)
	}
}
