// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

const mib = 1 << 20

func open(tb testing.TB, node *fakenode.Node) *nvml.Door {
	tb.Helper()
	library, err := nvml.FindLibrary(node.Root)
	if err != nil {
		tb.Fatal(err)
	}
	door, err := nvml.Open(library)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(door.Close)
	return door
}

func look(tb testing.TB, door *nvml.Door) gpu.Node {
	tb.Helper()
	node, err := door.Look(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return node
}

func TestLookAtMixedBoards(t *testing.T) {
	node := fakenode.New(t,
		fakenode.Boards{Board: "h100-80gb", Count: 2},
		fakenode.Boards{Board: "a100-80gb", Count: 1, MIG: true},
		fakenode.Boards{Board: "h200-141gb", Count: 1})
	got := look(t, open(t, node))

	if got.DriverVersion == "" {
		t.Error("no driver version")
	}
	want := []gpu.GPU{
		{Minor: 0, Architecture: "Hopper", MemoryBytes: 81152 * mib, MIGMode: gpu.MIGDisabled, MIGModeSwitchable: true, MemorySlices: 8, ComputeSlices: 7},
		{Minor: 1, Architecture: "Hopper", MemoryBytes: 81152 * mib, MIGMode: gpu.MIGDisabled, MIGModeSwitchable: true, MemorySlices: 8, ComputeSlices: 7},
		{Minor: 2, Architecture: "Ampere", MemoryBytes: 80896 * mib, MIGMode: gpu.MIGEnabled, MemorySlices: 8, ComputeSlices: 7},
		{Minor: 3, Architecture: "Hopper", MemoryBytes: (143771 - 616) * mib, MIGMode: gpu.MIGDisabled, MIGModeSwitchable: true, MemorySlices: 8, ComputeSlices: 7},
	}
	ignore := cmpopts.IgnoreFields(gpu.GPU{}, "UUID", "Product", "PCIBusID", "PCIeRoot", "NUMANode", "Profiles")
	if diff := cmp.Diff(want, got.GPUs, ignore); diff != "" {
		t.Errorf("GPUs differ (-want +got):\n%s", diff)
	}
	for i, seen := range node.Show(t).GPUs {
		if got.GPUs[i].UUID != seen.UUID || !strings.HasPrefix(seen.UUID, "GPU-") {
			t.Errorf("GPU %d has UUID %s, the hardware says %s", i, got.GPUs[i].UUID, seen.UUID)
		}
		if got.GPUs[i].Product == "" || !strings.HasPrefix(got.GPUs[i].PCIBusID, "0000:") {
			t.Errorf("GPU %d: product %q, bus id %q", i, got.GPUs[i].Product, got.GPUs[i].PCIBusID)
		}
	}
}

func TestLookReadsProfiles(t *testing.T) {
	for _, tc := range []struct {
		name    string
		board   string
		profile gpu.Profile
		names   []string
	}{
		{
			name: "an A100 has seven small instances", board: "a100-80gb",
			names: []string{"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "1g.20gb"},
			profile: gpu.Profile{Name: "1g.10gb", ID: 0, MemoryBytes: 9728 * mib, ComputeSlices: 1, MemorySlices: 1,
				Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7},
		},
		{
			name: "an H100's half takes four memory slices at two places", board: "h100-80gb",
			names: []string{"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "1g.20gb"},
			profile: gpu.Profile{Name: "3g.40gb", ID: 2, MemoryBytes: 40448 * mib, ComputeSlices: 3, MemorySlices: 4,
				Starts: []int{0, 4}, Max: 2, Decoders: 3, JPEG: 3},
		},
		{
			name: "an A30 has four slices", board: "a30-24gb",
			names: []string{"1g.6gb", "2g.12gb", "4g.24gb", "1g.6gb+me", "2g.12gb+me"},
			profile: gpu.Profile{Name: "4g.24gb", ID: 3, MemoryBytes: 24003 * mib, ComputeSlices: 4, MemorySlices: 4,
				Starts: []int{0}, Max: 1, Decoders: 4, JPEG: 1, OFA: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := fakenode.New(t, fakenode.Boards{Board: tc.board, Count: 1})
			g := look(t, open(t, node)).GPUs[0]
			var names []string
			for _, p := range g.Profiles {
				names = append(names, p.Name)
			}
			if diff := cmp.Diff(tc.names, names); diff != "" {
				t.Errorf("profiles differ (-want +got):\n%s", diff)
			}
			got, _ := g.Profile(tc.profile.Name)
			if diff := cmp.Diff(tc.profile, got); diff != "" {
				t.Errorf("profile differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLookLeavesOutASickGPU(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 3})
	door := open(t, node)
	all := look(t, door)
	node.CLI(t, "fault", "--lost", "--gpu", "1")

	got, err := door.Look(t.Context())
	var sick *nvml.SickGPUError
	if !errors.Is(err, nvml.ErrSick) || !errors.As(err, &sick) || sick.Index != 1 {
		t.Errorf("Look answers %v, want an ErrSick about GPU 1", err)
	}
	var call *nvml.CallError
	if !errors.As(err, &call) || errors.Is(err, nvml.ErrFailed) {
		t.Errorf("Look answers %v, want it to hold the call that failed and not to be an ErrFailed", err)
	}
	want := []gpu.GPU{all.GPUs[0], all.GPUs[2]}
	if diff := cmp.Diff(want, got.GPUs); diff != "" {
		t.Errorf("the healthy GPUs differ (-want +got):\n%s", diff)
	}

	node.CLI(t, "fault", "--found", "--gpu", "1")
	if diff := cmp.Diff(all, look(t, door)); diff != "" {
		t.Errorf("the node does not recover (-want +got):\n%s", diff)
	}
}

func TestLookTellsWhyNothingAnswers(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	node.CLI(t, "fault", "--call", "nvmlDeviceGetCount_v2", "--return", "NVML_ERROR_UNKNOWN")
	got, err := door.Look(t.Context())
	var call *nvml.CallError
	if !errors.Is(err, nvml.ErrFailed) || !errors.As(err, &call) || call.Return != 999 {
		t.Errorf("Look answers %v, want an ErrFailed with the call's answer", err)
	}
	if got.DriverVersion != "" || got.GPUs != nil {
		t.Errorf("Look answers %+v beside its error", got)
	}
	look(t, door)
}

func TestLookEndsWithItsContext(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := door.Look(ctx); !errors.Is(err, context.Canceled) || got.GPUs != nil {
		t.Errorf("Look answers %v, %v, want the context's end", got, err)
	}
}

func TestOpenTellsWhatIsMissing(t *testing.T) {
	t.Run("a driver root without the library names all that was tried", func(t *testing.T) {
		_, err := nvml.FindLibrary(t.TempDir())
		if !errors.Is(err, nvml.ErrNotFound) || !strings.Contains(err.Error(), "usr/lib64/libnvidia-ml.so.1") {
			t.Errorf("FindLibrary answers %v", err)
		}
	})
	t.Run("the node's own root is left to the loader in the end", func(t *testing.T) {
		if path, err := nvml.FindLibrary("/"); err != nil || filepath.Base(path) != "libnvidia-ml.so.1" {
			t.Errorf("FindLibrary answers %s, %v", path, err)
		}
	})
	t.Run("a missing library is ErrNotFound", func(t *testing.T) {
		if _, err := nvml.Open(filepath.Join(t.TempDir(), "libnvidia-ml.so.1")); !errors.Is(err, nvml.ErrNotFound) {
			t.Errorf("Open answers %v", err)
		}
	})
	t.Run("a file that is no library is ErrNotFound", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
		if err := os.WriteFile(path, []byte("not a library"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := nvml.Open(path); !errors.Is(err, nvml.ErrNotFound) {
			t.Errorf("Open answers %v", err)
		}
	})
	t.Run("a driver that is not loaded is ErrFailed, and is tried again", func(t *testing.T) {
		node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
		node.CLI(t, "fault", "--call", "nvmlInit_v2", "--return", "NVML_ERROR_DRIVER_NOT_LOADED")
		if _, err := nvml.Open(node.Library); !errors.Is(err, nvml.ErrFailed) {
			t.Errorf("Open answers %v", err)
		}
		look(t, open(t, node))
	})
}

func TestAClosedDoorAnswers(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door := open(t, node)
	door.Close()
	door.Close()
	if _, err := door.Look(t.Context()); !errors.Is(err, nvml.ErrFailed) {
		t.Errorf("Look answers %v, want %v", err, nvml.ErrFailed)
	}
}

func TestLookReadsThePlaceFromSysfs(t *testing.T) {
	node := fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	busID := look(t, open(t, node)).GPUs[0].PCIBusID
	sysfs := t.TempDir()
	device := filepath.Join(sysfs, "devices", "pci0000:00", "0000:00:01.0", busID)
	links := filepath.Join(sysfs, "bus", "pci", "devices")
	for _, dir := range []string{device, links} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(device, "numa_node"), []byte("3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..", "..", "..", "devices", "pci0000:00", "0000:00:01.0", busID), filepath.Join(links, busID)); err != nil {
		t.Fatal(err)
	}
	door, err := nvml.Open(node.Library, nvml.WithSysfs(sysfs))
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	g := look(t, door).GPUs[0]
	if g.PCIeRoot != "pci0000:00" || g.NUMANode != 3 {
		t.Errorf("root %q, NUMA node %d, want pci0000:00 and 3", g.PCIeRoot, g.NUMANode)
	}
}

// BenchmarkLook looks at eight GPUs with MIG mode on.
func BenchmarkLook(b *testing.B) {
	door := open(b, fakenode.New(b, fakenode.Boards{Board: "h100-80gb", Count: 8, MIG: true}))
	look(b, door)
	for b.Loop() {
		look(b, door)
	}
}
