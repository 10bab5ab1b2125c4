// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// NoLimit is the hard limit of a cgroup that is not limited.
const NoLimit uint64 = math.MaxUint64

// limitsDeadline bounds a call about limits. A container's start waits for it.
const limitsDeadline = 3 * time.Second

const (
	setLimits = "nvmlDeviceSetMemoryLimits_v1"
	getLimits = "nvmlDeviceGetMemoryLimits_v1"
)

var (
	// ErrLimitsUnsupported says that the driver has no memory limits by cgroup, or knows of none for this cgroup.
	ErrLimitsUnsupported = errors.New("memory limits by cgroup are not supported")
	// ErrNoSuchCgroup says that the driver cannot open the cgroup.
	ErrNoSuchCgroup = errors.New("no such cgroup")
	// ErrNoController says that the cgroup has no files of the kernel's controller for device memory.
	ErrNoController = errors.New("the cgroup has no dmem controller")
	// ErrLimitsRefused is every other answer by which the driver refuses a limit.
	ErrLimitsRefused = errors.New("the driver refuses the limit")
)

// limitSymbols are those of memory limits, which came with R615.
func limitSymbols() []string { return []string{setLimits, getLimits} }

// MemoryLimits are those of a cgroup on a GPU, in bytes.
type MemoryLimits struct {
	// Soft is guaranteed, Hard the most that can be had; NoLimit where there is no limit.
	Soft, Hard uint64
	// Used is what the cgroup's processes hold.
	Used uint64
}

// SetMemoryLimits limits what the processes of a cgroup hold of a GPU's memory. The cgroup is its path in the file system.
// (0, NoLimit) takes the limits away.
func (d *Door) SetMemoryLimits(ctx context.Context, gpuUUID, cgroup string, soft, hard uint64) error {
	err := d.limits(ctx, gpuUUID, setLimits, func(device nvml.Device) nvml.Return {
		return device.SetMemoryLimits_v1(cgroup, soft, hard)
	})
	if err != nil {
		return fmt.Errorf("limiting the memory of %s on GPU %s: %w", cgroup, gpuUUID, err)
	}
	return nil
}

// MemoryLimits reads the limits of a cgroup on a GPU.
func (d *Door) MemoryLimits(ctx context.Context, gpuUUID, cgroup string) (MemoryLimits, error) {
	var found nvml.MemoryLimits_v1
	err := d.limits(ctx, gpuUUID, getLimits, func(device nvml.Device) nvml.Return {
		read, ret := device.GetMemoryLimits_v1(cgroup)
		if ret == nvml.SUCCESS {
			found = read
		}
		return ret
	})
	if err != nil {
		return MemoryLimits{}, fmt.Errorf("reading the memory limits of %s on GPU %s: %w", cgroup, gpuUUID, err)
	}
	return MemoryLimits{Soft: found.SoftLimit, Hard: found.HardLimit, Used: found.CurrentUsed}, nil
}

// limits makes one call about limits.
func (d *Door) limits(ctx context.Context, gpuUUID, symbol string, call func(nvml.Device) nvml.Return) error {
	if !d.has(symbol) {
		return fmt.Errorf("%w: the library has no %s", ErrLimitsUnsupported, symbol)
	}
	return d.onWithin(ctx, gpuUUID, min(limitsDeadline, d.deadline), func(device nvml.Device) error {
		return limitsError(symbol, call(device))
	})
}

// limitsError is what an answer means.
func limitsError(symbol string, ret nvml.Return) error {
	err := failed(symbol, ret)
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return fmt.Errorf("%w: %w", ErrLimitsUnsupported, err)
	case nvml.ERROR_OPERATING_SYSTEM:
		return fmt.Errorf("%w: %w", ErrNoSuchCgroup, err)
	case nvml.ERROR_NOT_FOUND:
		return fmt.Errorf("%w: %w", ErrNoController, err)
	case nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w: %w", ErrLimitsRefused, err)
	default:
		return err
	}
}
