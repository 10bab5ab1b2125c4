// SPDX-License-Identifier: Apache-2.0

// Package smi runs nvidia-smi for the one setting that NVML has no call for: how long a process computes before another one
// has its turn. The driver forgets it when it is loaded again, and tells it back only in a table for people.
package smi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// ErrNotFound says that the driver was installed without its tools, or that its root is configured wrongly.
var ErrNotFound = errors.New("nvidia-smi not found")

// program is the tool's name, timeout how long a call may take.
const (
	program = "nvidia-smi"
	timeout = 15 * time.Second
)

// programDirs are the directories below a driver root in which distributions and driver containers put the tool.
func programDirs() []string {
	return []string{"usr/bin", "bin", "usr/local/nvidia/bin", "opt/bin"}
}

// Tool is the nvidia-smi of a driver.
type Tool struct {
	// DriverRoot is where the driver is installed.
	DriverRoot string
}

// SetTimeSlice sets how long a process computes on a GPU before another one has its turn.
func (t *Tool) SetTimeSlice(ctx context.Context, gpuUUID string, slice v1alpha1.TimeSlice) error {
	level, err := levelOf(slice)
	if err != nil {
		return err
	}
	path, err := t.find()
	if err != nil {
		return fmt.Errorf("setting the time slice of %s: %w", gpuUUID, err)
	}
	library, err := nvml.FindLibrary(t.DriverRoot)
	if err != nil {
		return fmt.Errorf("setting the time slice of %s: %w", gpuUUID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "compute-policy", "-i", gpuUUID, "--set-timeslice", strconv.Itoa(level))
	// The tool looks for the library where the loader does, which is not below the driver's root.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=" + filepath.Dir(library)}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("setting the time slice of %s: %v: %w: %s", gpuUUID, cmd.Args, err, bytes.TrimSpace(out))
	}
	return nil
}

func (t *Tool) find() (string, error) {
	tried := make([]string, 0, len(programDirs()))
	for _, dir := range programDirs() {
		candidate := filepath.Join(t.DriverRoot, dir, program)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
			return candidate, nil
		}
		tried = append(tried, candidate)
	}
	return "", fmt.Errorf("%w: looked for %v", ErrNotFound, tried)
}

// levelOf is the tool's number for a time slice.
func levelOf(slice v1alpha1.TimeSlice) (int, error) {
	switch slice {
	case v1alpha1.TimeSliceDefault:
		return 0, nil
	case v1alpha1.TimeSliceShort:
		return 1, nil
	case v1alpha1.TimeSliceMedium:
		return 2, nil
	case v1alpha1.TimeSliceLong:
		return 3, nil
	default:
		return 0, fmt.Errorf("there is no time slice %q", slice)
	}
}
