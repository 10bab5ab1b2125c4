// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// maxNUMANodes bounds the question for a GPU's memory affinity.
const maxNUMANodes = 1024

// Look reads all GPUs of the node, with their MIG profiles and instances. GPUs that do not answer are left out and named
// in an error that is ErrSick: the Node is then right for all others. With any other error the Node is empty.
func (d *Door) Look(ctx context.Context) (gpu.Node, error) {
	leave, err := d.enter()
	if err != nil {
		return gpu.Node{}, err
	}
	var version string
	var count int
	err = d.bounded(all, d.deadline, leave, func() error {
		var err error
		version, count, err = d.overview()
		return err
	})
	if err != nil {
		return gpu.Node{}, err
	}
	node := gpu.Node{DriverVersion: version}
	var sick []error
	for index := range count {
		g, err := d.lookAt(ctx, index)
		if err := ctx.Err(); err != nil {
			return gpu.Node{}, fmt.Errorf("looking at GPU %d of %d: %w", index, count, context.Cause(ctx))
		}
		if err != nil {
			sick = append(sick, &SickGPUError{Index: index, UUID: g.UUID, Err: err})
			continue
		}
		node.GPUs = append(node.GPUs, g)
	}
	slices.SortStableFunc(node.GPUs, func(a, b gpu.GPU) int { return a.Minor - b.Minor })
	return node, errors.Join(sick...)
}

// overview reads the driver's version and how many GPUs there are.
func (d *Door) overview() (version string, count int, err error) {
	version, ret := d.lib.SystemGetDriverVersion()
	if err := failed("nvmlSystemGetDriverVersion", ret); err != nil {
		return "", 0, fmt.Errorf("reading the driver's version: %w: %w", ErrFailed, err)
	}
	count, ret = d.lib.DeviceGetCount()
	if err := failed("nvmlDeviceGetCount", ret); err != nil {
		return "", 0, fmt.Errorf("counting GPUs: %w: %w", ErrFailed, err)
	}
	return version, count, nil
}

// lookAt reads one GPU. The GPU it returns with an error has its UUID, where that could be read now or before.
func (d *Door) lookAt(ctx context.Context, index int) (gpu.GPU, error) {
	uuid, err := d.indexed(index)
	if err != nil {
		return gpu.GPU{UUID: uuid}, err
	}
	var g gpu.GPU
	err = d.on(ctx, uuid, func(device nvml.Device) error {
		seen := gpu.GPU{UUID: uuid}
		for _, read := range []func(nvml.Device, *gpu.GPU) error{d.readIdentity, d.readPlace, d.readMemory, d.readVirtual, d.readMIG} {
			if err := read(device, &seen); err != nil {
				d.forget(uuid)
				return err
			}
		}
		g = seen
		return nil
	})
	if err != nil {
		return gpu.GPU{UUID: uuid}, err
	}
	return g, nil
}

// indexed reads which GPU has the index; with an error it is the one that had it before.
func (d *Door) indexed(index int) (string, error) {
	d.mu.Lock()
	before := d.seen[index]
	d.mu.Unlock()
	leave, err := d.enter()
	if err != nil {
		return before, err
	}
	var uuid string
	var device nvml.Device
	err = d.bounded(fmt.Sprintf("GPU %d", index), d.deadline, leave, func() error {
		found, ret := d.lib.DeviceGetHandleByIndex(index)
		if err := failed("nvmlDeviceGetHandleByIndex", ret); err != nil {
			return err
		}
		device = found
		uuid, ret = found.GetUUID()
		return failed("nvmlDeviceGetUUID", ret)
	})
	if err != nil {
		return before, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles[uuid], d.seen[index] = device, uuid
	return uuid, nil
}

// readIdentity reads what the GPU is.
func (*Door) readIdentity(device nvml.Device, g *gpu.GPU) error {
	minor, ret := device.GetMinorNumber()
	if err := failed("nvmlDeviceGetMinorNumber", ret); err != nil {
		return err
	}
	product, ret := device.GetName()
	if err := failed("nvmlDeviceGetName", ret); err != nil {
		return err
	}
	architecture, ret := device.GetArchitecture()
	if err := failed("nvmlDeviceGetArchitecture", ret); err != nil {
		return err
	}
	g.Minor, g.Product = minor, product
	g.Architecture = architectureName(architecture)
	g.MIGModeSwitchable = architecture >= nvml.DEVICE_ARCH_HOPPER && architecture != nvml.DEVICE_ARCH_UNKNOWN
	return nil
}

// architectureName is the architecture as NVIDIA writes it.
func architectureName(architecture nvml.DeviceArchitecture) string {
	names := map[nvml.DeviceArchitecture]string{
		nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal",
		nvml.DEVICE_ARCH_VOLTA: "Volta", nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
		nvml.DEVICE_ARCH_ADA: "Ada", nvml.DEVICE_ARCH_HOPPER: "Hopper", nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
		nvml.DEVICE_ARCH_RUBIN: "Rubin",
	}
	if name, ok := names[architecture]; ok {
		return name
	}
	return "Unknown"
}

// readPlace reads where the GPU sits. Virtual machines hide the topology: what sysfs does not say stays unknown.
func (d *Door) readPlace(device nvml.Device, g *gpu.GPU) error {
	pci, ret := device.GetPciInfo()
	if err := failed("nvmlDeviceGetPciInfo", ret); err != nil {
		return err
	}
	g.PCIBusID = fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(g.PCIBusID, deviceattribute.WithFSFromRoot(d.sysfs))
	if err == nil && root.Value.StringValue != nil {
		g.PCIeRoot = *root.Value.StringValue
	}
	g.NUMANode = d.numaNode(device, g.PCIBusID)
	return nil
}

// numaNode is the node nearest to the GPU, -1 where neither sysfs nor NVML knows exactly one.
func (d *Door) numaNode(device nvml.Device, busID string) int {
	if data, err := os.ReadFile(filepath.Join(d.sysfs, "bus", "pci", "devices", busID, "numa_node")); err == nil {
		if node, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && node >= 0 {
			return node
		}
	}
	if !d.has("nvmlDeviceGetMemoryAffinity") {
		return -1
	}
	words, ret := device.GetMemoryAffinity(maxNUMANodes, nvml.AFFINITY_SCOPE_NODE)
	if ret != nvml.SUCCESS {
		return -1
	}
	return onlyBit(words)
}

// onlyBit is the index of the one bit that is set, -1 where there is none or more than one.
func onlyBit(words []uint) int {
	found := -1
	for i := range len(words) * strconv.IntSize {
		if words[i/strconv.IntSize]>>(i%strconv.IntSize)&1 == 0 {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// readMemory reads what CUDA can use.
func (d *Door) readMemory(device nvml.Device, g *gpu.GPU) error {
	if d.has("nvmlDeviceGetMemoryInfo_v2") {
		memory, ret := device.GetMemoryInfo_v2()
		if !unsupported(ret) {
			g.MemoryBytes = int64(memory.Total - memory.Reserved)
			return failed("nvmlDeviceGetMemoryInfo_v2", ret)
		}
	}
	total, err := d.totalMemory(device)
	g.MemoryBytes = int64(total)
	return err
}

// totalMemory is all of the board's memory.
func (*Door) totalMemory(device nvml.Device) (uint64, error) {
	memory, ret := device.GetMemoryInfo()
	return memory.Total, failed("nvmlDeviceGetMemoryInfo", ret)
}

// readMIG reads mode, profiles and instances.
func (d *Door) readMIG(device nvml.Device, g *gpu.GPU) error {
	current, pending, ret := device.GetMigMode()
	if unsupported(ret) {
		g.MIGMode, g.MIGModeSwitchable = gpu.MIGUnsupported, false
		return nil
	}
	if err := failed("nvmlDeviceGetMigMode", ret); err != nil {
		return err
	}
	profiles, err := d.boardProfilesOf(g.UUID, device)
	if err != nil {
		return err
	}
	g.Profiles = profilesOf(profiles)
	g.MemorySlices, g.ComputeSlices = memorySlices(profiles), computeSlices(profiles)
	g.MIGMode = gpu.MIGDisabled
	if current != nvml.DEVICE_MIG_ENABLE {
		g.MIGModePending = pending == nvml.DEVICE_MIG_ENABLE
		return nil
	}
	g.MIGMode = gpu.MIGEnabled
	g.Instances, err = readInstances(device, profiles)
	return err
}
