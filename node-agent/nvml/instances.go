// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// instanceIDs are the two ids by which NVML knows a MIG device of a GPU.
type instanceIDs struct{ gi, ci int }

// readInstances walks the GPU instances, not the MIG devices: an instance whose compute instance was never created, or
// was destroyed, has no MIG device and would stay unseen.
func readInstances(device nvml.Device, profiles []boardProfile) ([]gpu.Instance, error) {
	var uuids map[instanceIDs]string
	var instances []gpu.Instance
	for _, p := range profiles {
		found, ret := device.GetGpuInstances(&p.info)
		if unsupported(ret) {
			continue
		}
		if err := failed("nvmlDeviceGetGpuInstances", ret); err != nil {
			return nil, fmt.Errorf("listing instances of %s: %w", p.Name, err)
		}
		for _, instance := range found {
			if uuids == nil {
				var err error
				if uuids, err = migUUIDs(device); err != nil {
					return nil, err
				}
			}
			one, err := readInstance(instance, p, uuids)
			if err != nil {
				return nil, err
			}
			instances = append(instances, one)
		}
	}
	slices.SortFunc(instances, func(a, b gpu.Instance) int { return a.Start - b.Start })
	return instances, nil
}

// readInstance reads one GPU instance and its compute instance; of several, which this agent never makes, the first.
func readInstance(instance nvml.GpuInstance, p boardProfile, uuids map[instanceIDs]string) (gpu.Instance, error) {
	info, ret := instance.GetInfo()
	if err := failed("nvmlGpuInstanceGetInfo", ret); err != nil {
		return gpu.Instance{}, fmt.Errorf("reading an instance of %s: %w", p.Name, err)
	}
	out := gpu.Instance{
		Profile: p.Name,
		Start:   int(info.Placement.Start),
		Size:    int(info.Placement.Size),
		GIID:    int(info.Id),
		CIID:    -1,
	}
	computes, err := computeInstances(instance)
	if err != nil {
		return gpu.Instance{}, fmt.Errorf("reading instance %d: %w", out.GIID, err)
	}
	for _, compute := range computes {
		info, ret := compute.GetInfo()
		if err := failed("nvmlComputeInstanceGetInfo", ret); err != nil {
			return gpu.Instance{}, fmt.Errorf("reading the compute instance of instance %d: %w", out.GIID, err)
		}
		if id := int(info.Id); out.CIID < 0 || id < out.CIID {
			out.CIID = id
		}
	}
	out.UUID = uuids[instanceIDs{out.GIID, out.CIID}]
	return out, nil
}

// computeInstances are all compute instances of a GPU instance, whoever made them.
func computeInstances(instance nvml.GpuInstance) ([]nvml.ComputeInstance, error) {
	var all []nvml.ComputeInstance
	for id := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := instance.GetComputeInstanceProfileInfo(id, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if unsupported(ret) || (ret == nvml.SUCCESS && info.InstanceCount == 0) {
			continue
		}
		if err := failed("nvmlGpuInstanceGetComputeInstanceProfileInfo", ret); err != nil {
			return nil, fmt.Errorf("reading compute profile %d: %w", id, err)
		}
		found, ret := instance.GetComputeInstances(&info)
		if unsupported(ret) {
			continue
		}
		if err := failed("nvmlGpuInstanceGetComputeInstances", ret); err != nil {
			return nil, fmt.Errorf("listing compute instances of profile %d: %w", id, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// migUUIDs are the UUIDs of the GPU's MIG devices.
func migUUIDs(device nvml.Device) (map[instanceIDs]string, error) {
	count, ret := device.GetMaxMigDeviceCount()
	if err := failed("nvmlDeviceGetMaxMigDeviceCount", ret); err != nil {
		return nil, fmt.Errorf("counting MIG devices: %w", err)
	}
	uuids := map[instanceIDs]string{}
	for index := range count {
		mig, ret := device.GetMigDeviceHandleByIndex(index)
		if ret == nvml.ERROR_NOT_FOUND || unsupported(ret) {
			continue
		}
		if err := failed("nvmlDeviceGetMigDeviceHandleByIndex", ret); err != nil {
			return nil, fmt.Errorf("looking up MIG device %d: %w", index, err)
		}
		ids, uuid, err := readMIGDevice(mig)
		if err != nil {
			return nil, fmt.Errorf("reading MIG device %d: %w", index, err)
		}
		uuids[ids] = uuid
	}
	return uuids, nil
}

// readMIGDevice reads which instances a MIG device is, and its UUID.
func readMIGDevice(mig nvml.Device) (instanceIDs, string, error) {
	gi, ret := mig.GetGpuInstanceId()
	if err := failed("nvmlDeviceGetGpuInstanceId", ret); err != nil {
		return instanceIDs{}, "", err
	}
	ci, ret := mig.GetComputeInstanceId()
	if err := failed("nvmlDeviceGetComputeInstanceId", ret); err != nil {
		return instanceIDs{}, "", err
	}
	uuid, ret := mig.GetUUID()
	if err := failed("nvmlDeviceGetUUID", ret); err != nil {
		return instanceIDs{}, "", err
	}
	return instanceIDs{gi, ci}, uuid, nil
}
