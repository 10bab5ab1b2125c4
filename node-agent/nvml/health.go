// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/health"
)

// healthSymbols are the optional ones of this file.
func healthSymbols() []string {
	return []string{
		"nvmlDeviceGetFieldValues", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetTotalEccErrors",
		"nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetVirtualizationMode",
		"nvmlDeviceGetGridLicensableFeatures_v4",
		"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents",
		"nvmlDeviceGetSupportedEventTypes",
	}
}

// Vitals are what the driver says of a GPU's health. What board or driver cannot tell is left out. ErrLost says that the
// driver does not reach the GPU, ErrHangs that it does not answer.
func (d *Door) Vitals(ctx context.Context, gpuUUID string) (health.Vitals, error) {
	var vitals health.Vitals
	err := d.on(ctx, gpuUUID, func(device nvml.Device) error {
		for _, read := range []struct {
			symbol string
			from   func(nvml.Device, *health.Vitals) nvml.Return
		}{
			{"nvmlDeviceGetFieldValues", readRecovery},
			{"nvmlDeviceGetRemappedRows", readRows},
			{"nvmlDeviceGetTotalEccErrors", readMemoryErrors},
			{"nvmlDeviceGetCurrentClocksThrottleReasons", readBrakes},
		} {
			if !d.has(read.symbol) {
				continue
			}
			if ret := read.from(device, &vitals); !unsupported(ret) {
				if err := failed(read.symbol, ret); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return health.Vitals{}, fmt.Errorf("reading the health of %s: %w", gpuUUID, err)
	}
	return vitals, nil
}

// readRecovery reads what the driver wants done about the GPU.
func readRecovery(device nvml.Device, v *health.Vitals) nvml.Return {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := device.GetFieldValues(values); ret != nvml.SUCCESS {
		return ret
	}
	// An old driver does not know the field, which it says in ways of its own.
	if nvml.Return(values[0].NvmlReturn) == nvml.SUCCESS {
		v.Recovery = recoveryOf(nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4])))
	}
	return nvml.SUCCESS
}

func recoveryOf(action nvml.DeviceGpuRecoveryAction) health.Recovery {
	switch action {
	case nvml.GPU_RECOVERY_ACTION_NONE:
		return health.RecoveryNone
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT, nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:
		return health.RecoveryReboot
	case nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:
		return health.RecoveryDrain
	case nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN:
		return health.RecoveryIMEX
	default:
		return health.RecoveryReset
	}
}

// readRows reads the state of the row remapper.
func readRows(device nvml.Device, v *health.Vitals) nvml.Return {
	_, _, pending, noSpares, ret := device.GetRemappedRows()
	if ret == nvml.SUCCESS {
		v.Remaps, v.RemapPending, v.RemapFailed = true, pending, noSpares
	}
	return ret
}

// readMemoryErrors counts the errors since the last reset that could not be corrected.
func readMemoryErrors(device nvml.Device, v *health.Vitals) nvml.Return {
	count, ret := device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	if ret == nvml.SUCCESS {
		v.Uncorrected = count
	}
	return ret
}

// readBrakes reads whether the hardware slows the GPU down. What software does to keep within its bounds is no fault.
func readBrakes(device nvml.Device, v *health.Vitals) nvml.Return {
	reasons, ret := device.GetCurrentClocksThrottleReasons()
	if ret == nvml.SUCCESS {
		v.ThermalBrake = reasons&nvml.ClocksThrottleReasonHwThermalSlowdown != 0
		v.PowerBrake = reasons&nvml.ClocksThrottleReasonHwPowerBrakeSlowdown != 0
	}
	return ret
}

// readVirtual finds out whether a hypervisor gives the GPU to the node as a part of a real one.
func (d *Door) readVirtual(device nvml.Device, g *gpu.GPU) error {
	if !d.has("nvmlDeviceGetVirtualizationMode") {
		return nil
	}
	mode, ret := device.GetVirtualizationMode()
	if unsupported(ret) || (ret == nvml.SUCCESS && mode != nvml.GPU_VIRTUALIZATION_MODE_VGPU) {
		return nil
	}
	if err := failed("nvmlDeviceGetVirtualizationMode", ret); err != nil {
		return err
	}
	g.Licence = d.licence(device)
	return nil
}

// licence is a virtual GPU's. The GPU works without an answer, too.
func (d *Door) licence(device nvml.Device) gpu.Licence {
	if !d.has("nvmlDeviceGetGridLicensableFeatures_v4") {
		return gpu.LicenceUnknown
	}
	features, ret := device.GetGridLicensableFeatures()
	if ret != nvml.SUCCESS || features.IsGridLicenseSupported == 0 {
		return gpu.LicenceUnknown
	}
	for _, f := range features.GridLicensableFeatures[:min(int(features.LicensableFeaturesCount), len(features.GridLicensableFeatures))] {
		if f.FeatureEnabled != 0 && f.FeatureState != 0 {
			return gpu.Licensed
		}
	}
	return gpu.Unlicensed
}
