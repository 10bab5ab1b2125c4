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

// Processes are those with contexts on a device, which is a GPU or a MIG device of it. A process for which NVML has no figure,
// as in some virtual machines and for a reader in a PID namespace of its own, is left out: no figure is not a small one.
func (d *Door) Processes(ctx context.Context, gpuUUID, deviceUUID string) ([]Process, error) {
	var found []Process
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
		found, err = d.processes(device)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the processes on %s: %w", deviceUUID, err)
	}
	return found, nil
}

// processes are those of a device's two lists, plain ones and clients of MPS. One that is in both has one figure.
func (d *Door) processes(device nvml.Device) ([]Process, error) {
	var found []Process
	for _, list := range []struct {
		symbol string
		ask    func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses_v3", device.GetComputeRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses_v3", device.GetMPSComputeRunningProcesses},
	} {
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
		earlier := found
		for _, info := range infos {
			listed := slices.ContainsFunc(earlier, func(p Process) bool { return p.PID == int(info.Pid) })
			if info.UsedGpuMemory != 0 && info.UsedGpuMemory != noMemoryFigure && !listed {
				found = append(found, Process{PID: int(info.Pid), Bytes: info.UsedGpuMemory})
			}
		}
	}
	return found, nil
}

// noMemoryFigure is NVML_VALUE_NOT_AVAILABLE in a process's memory.
const noMemoryFigure = ^uint64(0)
