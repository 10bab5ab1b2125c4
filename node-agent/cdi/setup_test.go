// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/sluice-gpu/sluice/internal/gpu"
	doors "github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

const claim = "0c5c7c0e-5b8f-4c53-9c7d-3a6f1d2b9e01"

// TestMain runs the tests where MIG's device minors can be put into /proc/driver.
func TestMain(m *testing.M) {
	fakenode.Main(m)
}

// setup is a node with its doors.
type setup struct {
	node *fakenode.Node
	nvml *nvml.Door
	cdi  *doors.Door
	dir  string
	gpus []gpu.GPU
}

func newSetup(tb testing.TB, boards ...fakenode.Boards) setup {
	tb.Helper()
	s := setup{node: fakenode.New(tb, boards...), dir: filepath.Join(tb.TempDir(), "cdi")}
	var err error
	if s.nvml, err = nvml.Open(s.node.Library); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.nvml.Close)
	look, err := s.nvml.Look(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	s.gpus = look.GPUs
	s.cdi, err = doors.New(doors.Options{
		DriverRoot: s.node.Root, SpecDir: s.dir, HookPath: "/opt/sluice/nvidia-cdi-hook", NVML: s.nvml.Library,
	}, testr.NewWithInterface(tb, testr.Options{}))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// instance makes a MIG instance on a GPU and returns its UUID.
func (s *setup) instance(tb testing.TB, gpuIndex int, profile string, start int) string {
	tb.Helper()
	giID, err := s.nvml.CreateGPUInstance(tb.Context(), s.gpus[gpuIndex].UUID, gpu.Placement{Profile: profile, Start: start})
	if err != nil {
		tb.Fatal(err)
	}
	_, uuid, err := s.nvml.CreateComputeInstance(tb.Context(), s.gpus[gpuIndex].UUID, giID)
	if err != nil {
		tb.Fatal(err)
	}
	return uuid
}

// read reads the claim's spec with the runtime's own code, which validates it.
func (s *setup) read(tb testing.TB) *cdi.Spec {
	tb.Helper()
	spec, err := cdi.ReadSpec(filepath.Join(s.dir, "k8s.gpu.sluice.dev-claim_"+claim+".json"), 0)
	if err != nil {
		tb.Fatal(err)
	}
	return spec
}

// nodes are the paths of the device nodes in the container.
func nodes(edits specs.ContainerEdits) []string {
	out := []string{}
	for _, node := range edits.DeviceNodes {
		out = append(out, node.Path)
	}
	slices.Sort(out)
	return out
}

func wantList(t *testing.T, door *doors.Door, want ...string) {
	t.Helper()
	got, err := door.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List differs (-want +got):\n%s", diff)
	}
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}

// BenchmarkWriteWholeGPU writes and removes the spec of a claim for one GPU.
func BenchmarkWriteWholeGPU(b *testing.B) {
	s := newSetup(b, fakenode.Boards{Board: "h100-80gb", Count: 4})
	benchmark(b, s, s.gpus[2].UUID)
}

// BenchmarkWriteMIGDevice writes and removes the spec of a claim for one MIG instance that exists.
func BenchmarkWriteMIGDevice(b *testing.B) {
	s := newSetup(b, fakenode.Boards{Board: "h100-80gb", Count: 4, MIG: true})
	benchmark(b, s, s.instance(b, 2, "1g.10gb", 0))
}

// BenchmarkRefresh finds out what all devices have in common.
func BenchmarkRefresh(b *testing.B) {
	s := newSetup(b, fakenode.Boards{Board: "h100-80gb", Count: 4})
	for b.Loop() {
		if err := s.cdi.Refresh(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmark(b *testing.B, s setup, uuid string) {
	b.Helper()
	grants := []doors.Grant{{Name: "0", UUID: uuid}}
	for b.Loop() {
		if _, err := s.cdi.Write(claim, grants); err != nil {
			b.Fatal(err)
		}
		if err := s.cdi.Remove(claim); err != nil {
			b.Fatal(err)
		}
	}
}
