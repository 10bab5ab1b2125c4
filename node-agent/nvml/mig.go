// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/procs"
)

// CreateGPUInstance creates a GPU instance exactly where it is wanted and returns its id. ErrNoRoom says that another
// instance is in the way, ErrBadPlacement that the GPU has no such profile or start.
func (d *Door) CreateGPUInstance(ctx context.Context, gpuUUID string, p gpu.Placement) (giID int, err error) {
	err = d.on(ctx, gpuUUID, func(device nvml.Device) error {
		profiles, err := d.boardProfilesOf(gpuUUID, device)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(profiles, func(b boardProfile) bool { return b.Name == p.Profile })
		if i < 0 || !slices.Contains(profiles[i].Starts, p.Start) {
			return ErrBadPlacement
		}
		wanted := nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(profiles[i].MemorySlices)}
		instance, ret := device.CreateGpuInstanceWithPlacement(&profiles[i].info, &wanted)
		if err := failed("nvmlDeviceCreateGpuInstanceWithPlacement", ret); err != nil {
			return err
		}
		info, ret := instance.GetInfo()
		if err := failed("nvmlGpuInstanceGetInfo", ret); err != nil {
			// Without its id nobody could destroy it later.
			return errors.Join(err, failed("nvmlGpuInstanceDestroy", instance.Destroy()))
		}
		giID = int(info.Id)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("creating MIG instance %s at %d on %s: %w", p.Profile, p.Start, gpuUUID, err)
	}
	return giID, nil
}

// CreateComputeInstance fills a GPU instance with one compute instance and returns its id and the UUID of the MIG device
// that the two are. It leaves nothing behind when it fails.
func (d *Door) CreateComputeInstance(ctx context.Context, gpuUUID string, giID int) (ciID int, migUUID string, err error) {
	err = d.on(ctx, gpuUUID, func(device nvml.Device) error {
		profiles, err := d.boardProfilesOf(gpuUUID, device)
		if err != nil {
			return err
		}
		instance, ret := device.GetGpuInstanceById(giID)
		if err := failed("nvmlDeviceGetGpuInstanceById", ret); err != nil {
			return err
		}
		compute, err := fillInstance(instance, profiles)
		if err != nil {
			return err
		}
		ciID, migUUID, err = identify(device, compute, giID)
		if err != nil {
			return errors.Join(err, failed("nvmlComputeInstanceDestroy", compute.Destroy()))
		}
		return nil
	})
	if err != nil {
		return 0, "", fmt.Errorf("creating the compute instance of MIG instance %d on %s: %w", giID, gpuUUID, err)
	}
	return ciID, migUUID, nil
}

// fillInstance creates the compute instance that takes all slices of a GPU instance.
func fillInstance(instance nvml.GpuInstance, profiles []boardProfile) (nvml.ComputeInstance, error) {
	info, ret := instance.GetInfo()
	if err := failed("nvmlGpuInstanceGetInfo", ret); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(profiles, func(p boardProfile) bool { return p.info.Id == info.ProfileId })
	if i < 0 {
		return nil, fmt.Errorf("profile %d of the instance: %w", info.ProfileId, ErrBadPlacement)
	}
	wanted, err := computeProfile(profiles[i].ComputeSlices)
	if err != nil {
		return nil, err
	}
	compute, ret := instance.GetComputeInstanceProfileInfo(wanted, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	if err := failed("nvmlGpuInstanceGetComputeInstanceProfileInfo", ret); err != nil {
		return nil, err
	}
	if int(compute.SliceCount) != profiles[i].ComputeSlices {
		return nil, fmt.Errorf("compute profile %d has %d slices, the instance %d: %w",
			wanted, compute.SliceCount, profiles[i].ComputeSlices, errNoComputeProfile)
	}
	created, ret := instance.CreateComputeInstance(&compute)
	return created, failed("nvmlGpuInstanceCreateComputeInstance", ret)
}

// errNoMIGDevice says that NVML shows no MIG device for instances that exist.
var errNoMIGDevice = errors.New("no MIG device appeared")

// identify finds the id of a new compute instance and the UUID of its MIG device.
func identify(device nvml.Device, compute nvml.ComputeInstance, giID int) (int, string, error) {
	info, ret := compute.GetInfo()
	if err := failed("nvmlComputeInstanceGetInfo", ret); err != nil {
		return 0, "", err
	}
	uuids, err := migUUIDs(device)
	if err != nil {
		return 0, "", err
	}
	ciID := int(info.Id)
	uuid, ok := uuids[instanceIDs{giID, ciID}]
	if !ok {
		return 0, "", errNoMIGDevice
	}
	return ciID, uuid, nil
}

// DestroyInstance destroys a GPU instance, its compute instances first. An instance that is not there is no error.
// ErrInUse says that a process holds it; the message names the ones NVML knows.
func (d *Door) DestroyInstance(ctx context.Context, gpuUUID string, giID int) error {
	err := d.on(ctx, gpuUUID, func(device nvml.Device) error {
		instance, ret := device.GetGpuInstanceById(giID)
		// With MIG mode off there are no instances, and NVML does not support the question.
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_NOT_SUPPORTED {
			return nil
		}
		if err := failed("nvmlDeviceGetGpuInstanceById", ret); err != nil {
			return err
		}
		computes, err := computeInstances(instance)
		if err != nil {
			return err
		}
		for _, compute := range computes {
			if err := failed("nvmlComputeInstanceDestroy", compute.Destroy()); err != nil {
				return d.withHolders(err, device, giID)
			}
		}
		return d.withHolders(failed("nvmlGpuInstanceDestroy", instance.Destroy()), device, giID)
	})
	if err != nil {
		return fmt.Errorf("destroying MIG instance %d on %s: %w", giID, gpuUUID, err)
	}
	return nil
}

// withHolders adds the processes on an instance to an ErrInUse.
func (d *Door) withHolders(err error, device nvml.Device, giID int) error {
	if !errors.Is(err, ErrInUse) {
		return err
	}
	holders, holdersErr := d.holders(device)
	if holdersErr != nil {
		return err
	}
	var names []string
	for _, h := range holders {
		if h.GIID == giID {
			names = append(names, procs.Name(d.proc, h.PID))
		}
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("held by %s: %w", strings.Join(names, ", "), err)
}

// SetMIGMode switches the MIG mode. ErrResetRequired says that the GPU accepted the mode and takes it at its next reset, as
// Ampere boards do: ask gpu.GPU.MIGModeSwitchable first. ErrInUse says that instances or processes are in the way.
func (d *Door) SetMIGMode(ctx context.Context, gpuUUID string, on bool) error {
	wanted := nvml.DEVICE_MIG_DISABLE
	if on {
		wanted = nvml.DEVICE_MIG_ENABLE
	}
	err := d.on(ctx, gpuUUID, func(device nvml.Device) error {
		current, pending, ret := device.GetMigMode()
		if unsupported(ret) {
			return ErrMIGUnsupported
		}
		if err := failed("nvmlDeviceGetMigMode", ret); err != nil {
			return err
		}
		if current == wanted && pending == wanted {
			return nil
		}
		activation, ret := device.SetMigMode(wanted)
		if err := failed("nvmlDeviceSetMigMode", ret); err != nil {
			return err
		}
		if err := failed("nvmlDeviceSetMigMode: activation", activation); err != nil {
			if errors.Is(err, ErrInUse) {
				// Left pending, the mode would change at some later reset, when nobody expects it.
				_, ret := device.SetMigMode(current)
				err = errors.Join(err, failed("nvmlDeviceSetMigMode: withdrawing", ret))
			}
			return err
		}
		current, _, ret = device.GetMigMode()
		if err := failed("nvmlDeviceGetMigMode", ret); err != nil {
			return err
		}
		if current != wanted {
			return ErrResetRequired
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("switching MIG mode of %s to %v: %w", gpuUUID, on, err)
	}
	return nil
}
