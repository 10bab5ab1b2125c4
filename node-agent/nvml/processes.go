// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Process is a process that has a CUDA context on a device.
type Process struct {
	// PID is the one that the node knows it by.
	PID int
	// Bytes are what it holds of the device's memory.
	Bytes uint64
}

// Figure is a process on a device and what NVML says of its memory.
type Figure struct {
	// PID is the one that the node knows it by.
	PID int
	// Bytes are what it holds of the device's memory; Known is false where NVML does not say, as in some virtual machines
	// and to a reader in a PID namespace of its own. No figure is not a small one.
	Bytes uint64
	Known bool
}

// Processes are those with CUDA contexts on a device, which is a GPU or a MIG device of it, for which NVML has a figure.
func (d *Door) Processes(ctx context.Context, gpuUUID, deviceUUID string) ([]Process, error) {
	figures, err := d.list(ctx, gpuUUID, deviceUUID, false)
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, f := range figures {
		if f.Known {
			found = append(found, Process{PID: f.PID, Bytes: f.Bytes})
		}
	}
	return found, nil
}

// Figures are all processes on a device, those that draw included, with a figure or without one.
func (d *Door) Figures(ctx context.Context, gpuUUID, deviceUUID string) ([]Figure, error) {
	return d.list(ctx, gpuUUID, deviceUUID, true)
}

func (d *Door) list(ctx context.Context, gpuUUID, deviceUUID string, graphics bool) ([]Figure, error) {
	var found []Figure
	err := d.on(ctx, gpuUUID, func(device nvml.Device) error {
		// A MIG device's handle ends with its instance, so it is not kept.
		if strings.HasPrefix(deviceUUID, "MIG-") {
			mig, ret := d.lib.DeviceGetHandleByUUID(deviceUUID)
			if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
				return ErrGPUNotFound
			}
			if err := failed("nvmlDeviceGetHandleByUUID", ret); err != nil {
				return err
			}
			device = mig
		}
		var err error
		found, err = d.figures(device, graphics)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the processes on %s: %w", deviceUUID, err)
	}
	return found, nil
}

// processLists are a device's lists of processes: plain ones, clients of MPS and, where they are asked for, those that draw.
func processLists(device nvml.Device, graphics bool) []processList {
	lists := []processList{
		{"nvmlDeviceGetComputeRunningProcesses_v3", device.GetComputeRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses_v3", device.GetMPSComputeRunningProcesses},
	}
	if graphics {
		lists = append(lists, processList{"nvmlDeviceGetGraphicsRunningProcesses_v3", device.GetGraphicsRunningProcesses})
	}
	return lists
}

type processList struct {
	symbol string
	ask    func() ([]nvml.ProcessInfo, nvml.Return)
}

// figures are those of a device's lists. A process that is in several has one figure, which any of them may know.
func (d *Door) figures(device nvml.Device, graphics bool) ([]Figure, error) {
	var found []Figure
	for _, list := range processLists(device, graphics) {
		if !d.has(list.symbol) {
			continue
		}
		infos, ret := list.ask()
		if unsupported(ret) {
			continue
		}
		if err := failed(list.symbol, ret); err != nil {
			return nil, err
		}
		earlier := len(found)
		for _, info := range infos {
			f := Figure{PID: int(info.Pid)}
			if info.UsedGpuMemory != 0 && info.UsedGpuMemory != noMemoryFigure {
				f.Bytes, f.Known = info.UsedGpuMemory, true
			}
			i := slices.IndexFunc(found[:earlier], func(other Figure) bool { return other.PID == f.PID })
			switch {
			case i < 0:
				found = append(found, f)
			case !found[i].Known:
				found[i] = f
			}
		}
	}
	return found, nil
}

// MemoryUsed is how much of a GPU's memory is taken, whoever has it, what the driver keeps for itself left out.
func (d *Door) MemoryUsed(ctx context.Context, gpuUUID string) (uint64, error) {
	var used uint64
	err := d.on(ctx, gpuUUID, func(device nvml.Device) error {
		if d.has("nvmlDeviceGetMemoryInfo_v2") {
			memory, ret := device.GetMemoryInfo_v2()
			if !unsupported(ret) {
				used = memory.Used
				return failed("nvmlDeviceGetMemoryInfo_v2", ret)
			}
		}
		memory, ret := device.GetMemoryInfo()
		used = memory.Used
		return failed("nvmlDeviceGetMemoryInfo", ret)
	})
	if err != nil {
		return 0, fmt.Errorf("asking how much memory of %s is taken: %w", gpuUUID, err)
	}
	return used, nil
}

// noMemoryFigure is NVML_VALUE_NOT_AVAILABLE in a process's memory.
const noMemoryFigure = ^uint64(0)
