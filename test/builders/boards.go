// SPDX-License-Identifier: Apache-2.0

// Package builders makes valid objects and facts for tests, so that a test writes only what it is about.
package builders

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

type boardFile struct {
	GPUs []struct {
		Key          string `json:"key"`
		Product      string `json:"product"`
		Arch         string `json:"arch"`
		MemoryGB     int64  `json:"memoryGB"`
		MemorySlices int    `json:"memorySlices"`
		Profiles     []struct {
			Name   string   `json:"name"`
			NVML   string   `json:"nvml"`
			G      int      `json:"g"`
			Starts []int    `json:"starts"`
			Size   int      `json:"size"`
			Max    int      `json:"max"`
			Dec    int      `json:"dec"`
			Enc    int      `json:"enc"`
			JPEG   int      `json:"jpeg"`
			OFA    int      `json:"ofa"`
			GiB    *float64 `json:"gib"`
		} `json:"profiles"`
	} `json:"gpus"`
	NVMLConstants map[string]int `json:"nvmlConstants"`
}

// Boards are the GPUs of test/fakegpu/data/mig-profiles.yaml whose geometry is known, by key, as NVML would show them.
func Boards(tb testing.TB) map[string]gpu.GPU {
	tb.Helper()
	boards, err := ReadBoards()
	if err != nil {
		tb.Fatal(err)
	}
	return boards
}

// ReadBoards is Boards for what runs before any test does.
func ReadBoards() (map[string]gpu.GPU, error) {
	_, here, _, _ := runtime.Caller(0)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "fakegpu", "data", "mig-profiles.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the board data: %w", err)
	}
	var file boardFile
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("decoding the board data: %w", err)
	}
	boards := map[string]gpu.GPU{}
	for i, b := range file.GPUs {
		if b.MemorySlices == 0 {
			continue
		}
		g := gpu.GPU{
			UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i), Product: b.Product, Architecture: b.Arch,
			PCIBusID: fmt.Sprintf("0000:%02x:00.0", i+1), NUMANode: -1, MemoryBytes: b.MemoryGB << 30,
			MIGMode: gpu.MIGEnabled, MIGModeSwitchable: b.Arch != "ampere", MemorySlices: b.MemorySlices,
		}
		for _, p := range b.Profiles {
			gib := float64(b.MemoryGB) * float64(p.Size) / float64(b.MemorySlices)
			if p.GiB != nil {
				gib = *p.GiB
			}
			g.ComputeSlices = max(g.ComputeSlices, p.G)
			g.Profiles = append(g.Profiles, gpu.Profile{
				Name: p.Name, ID: file.NVMLConstants[p.NVML], MemoryBytes: int64(math.Round(gib*1024)) << 20,
				ComputeSlices: p.G, MemorySlices: p.Size, Starts: p.Starts, Max: p.Max,
				Decoders: p.Dec, Encoders: p.Enc, JPEG: p.JPEG, OFA: p.OFA,
			})
		}
		boards[b.Key] = g
	}
	return boards, nil
}
