// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Holder is a process that has a context, for compute, as a client of MPS or for graphics, on a GPU or on an instance of it.
type Holder struct {
	// PID is the one that the node knows it by.
	PID int
	// GIID is the GPU instance's id; -1 on a whole GPU.
	GIID int
}

// Holders are the processes on a GPU and its MIG instances, whoever they belong to, each once for each instance.
func (d *Door) Holders(ctx context.Context, gpuUUID string) ([]Holder, error) {
	var holders []Holder
	err := d.on(ctx, gpuUUID, func(device nvml.Device) error {
		var err error
		holders, err = d.holders(device)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing who holds %s: %w", gpuUUID, err)
	}
	return holders, nil
}

func (d *Door) holders(device nvml.Device) ([]Holder, error) {
	var holders []Holder
	for _, list := range []struct {
		symbol string
		ask    func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses_v3", device.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses_v3", device.GetGraphicsRunningProcesses},
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
		for _, info := range infos {
			h := Holder{PID: int(info.Pid), GIID: -1}
			if info.GpuInstanceId != math.MaxUint32 {
				h.GIID = int(info.GpuInstanceId)
			}
			if !slices.Contains(holders, h) {
				holders = append(holders, h)
			}
		}
	}
	return holders, nil
}
