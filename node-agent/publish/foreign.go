// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

const (
	// nvidiaDriver is NVIDIA's DRA driver for GPUs.
	nvidiaDriver = "gpu.nvidia.com"
	// nvidiaGPU and nvidiaMIG are what NVIDIA's device plugin, and those that imitate it, advertise.
	nvidiaGPU = "nvidia.com/gpu"
	nvidiaMIG = "nvidia.com/mig-"
)

// Foreign names who else hands out the node's GPUs: a device plugin, by what the Node says can be allocated, or another
// DRA driver, by its name or by a device that carries the UUID of one of the GPUs. It is "" for nobody.
func Foreign(allocatable corev1.ResourceList, slicesOfNode []resourceapi.ResourceSlice, gpuUUIDs []string) string {
	var names []string
	for name, amount := range allocatable {
		if (string(name) == nvidiaGPU || strings.HasPrefix(string(name), nvidiaMIG)) && amount.Sign() > 0 {
			names = append(names, string(name))
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return fmt.Sprintf("a device plugin (the Node has allocatable %s)", strings.Join(names, ", "))
	}
	for _, s := range slicesOfNode {
		if s.Spec.Driver == v1alpha1.DriverName {
			continue
		}
		if s.Spec.Driver == nvidiaDriver || slices.ContainsFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return carriesUUID(d, gpuUUIDs) }) {
			names = append(names, s.Spec.Driver)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return "DRA driver " + strings.Join(slices.Compact(names), ", ")
	}
	return ""
}

// carriesUUID is true where one of the device's attributes is the UUID of one of the GPUs.
func carriesUUID(d resourceapi.Device, gpuUUIDs []string) bool {
	for _, a := range d.Attributes {
		if a.StringValue != nil && slices.Contains(gpuUUIDs, *a.StringValue) {
			return true
		}
	}
	return false
}
