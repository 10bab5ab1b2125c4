// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// boards is what the table of known boards says that a name depends on.
type boards struct {
	Constants map[string]int `json:"nvmlConstants"`
	GPUs      []struct {
		Key          string `json:"key"`
		MemoryGB     uint64 `json:"memoryGB"`
		MemorySlices int    `json:"memorySlices"`
		Profiles     []struct {
			Name string `json:"name"`
			NVML string `json:"nvml"`
			G    int    `json:"g"`
			Size *int   `json:"size"`
		} `json:"profiles"`
	} `json:"gpus"`
}

// TestProfileNames compares the names that are made where the driver gives none with those of all known boards.
func TestProfileNames(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "test", "fakegpu", "data", "mig-profiles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var known boards
	if err := yaml.Unmarshal(data, &known); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, board := range known.GPUs {
		t.Run(board.Key, func(t *testing.T) {
			for _, p := range board.Profiles {
				id, ok := known.Constants[p.NVML]
				// Drivers do not agree on whether the smallest of this board has 23 or 24 GB.
				varies := board.Key == "gb200-186gb" && p.G == 1
				if !ok || p.Size == nil || (varies && *p.Size == 1) {
					continue
				}
				// A board has a little less than it is sold with.
				memory := board.MemoryGB<<30 - 100<<20
				got := profileName(gpu.Profile{ID: id, ComputeSlices: p.G, MemorySlices: *p.Size}, board.MemorySlices, memory)
				if diff := cmp.Diff(p.Name, got); diff != "" {
					t.Errorf("profile %s: name differs (-want +got):\n%s", p.NVML, diff)
				}
				compared++
			}
		})
	}
	if compared < 50 {
		t.Errorf("only %d names were compared", compared)
	}
}

func TestComputeProfile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		slices int
		want   int
		err    error
	}{
		{name: "one slice is the ordinary profile, not its revision", slices: 1, want: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE},
		{name: "seven slices are the ordinary profile, not the NVLink one", slices: 7, want: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE},
		{name: "three slices", slices: 3, want: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE},
		{name: "five slices do not exist", slices: 5, err: errNoComputeProfile},
		{name: "no slices do not exist", slices: 0, err: errNoComputeProfile},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := computeProfile(tc.slices)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("computeProfile(%d) = %d, %v, want %d, %v", tc.slices, got, err, tc.want, tc.err)
			}
		})
	}
}

func TestOnlyBit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		words []uint
		want  int
	}{
		{name: "no bit is no node", words: []uint{0, 0}, want: -1},
		{name: "the first node", words: []uint{1, 0}, want: 0},
		{name: "a node of the second word", words: []uint{0, 1 << 3}, want: 67},
		{name: "two nodes are none", words: []uint{1, 1}, want: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := onlyBit(tc.words); got != tc.want {
				t.Errorf("onlyBit(%v) = %d, want %d", tc.words, got, tc.want)
			}
		})
	}
}

func TestCallErrorsSteer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer nvml.Return
		want   error
	}{
		{name: "in use", answer: nvml.ERROR_IN_USE, want: ErrInUse},
		{name: "insufficient resources mean a taken placement", answer: nvml.ERROR_INSUFFICIENT_RESOURCES, want: ErrNoRoom},
		{name: "reset required", answer: nvml.ERROR_RESET_REQUIRED, want: ErrResetRequired},
		{name: "library not found", answer: nvml.ERROR_LIBRARY_NOT_FOUND, want: ErrNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := failed("call", tc.answer)
			for _, other := range []error{ErrInUse, ErrNoRoom, ErrResetRequired, ErrNotFound, ErrFailed, ErrSick} {
				if got, want := errors.Is(err, other), errors.Is(tc.want, other); got != want {
					t.Errorf("%v is %v: %v, want %v", err, other, got, want)
				}
			}
		})
	}
	if err := failed("call", nvml.SUCCESS); err != nil {
		t.Errorf("success is %v", err)
	}
}
