// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Grant is what one result of an allocation gives.
type Grant struct {
	// Request is the request's name, with a slash and the alternative where there are several.
	Request string
	// Device is the device.
	Device DeviceID
	// Pool is the GPUPool.
	Pool string
	// Amounts are what it costs.
	Amounts Amounts
}

// UnknownDeviceError says that nothing describes devices of an allocation, so that its cost is not known.
type UnknownDeviceError struct {
	// Devices are the devices.
	Devices []DeviceID
}

// Error names the first of the devices.
func (e *UnknownDeviceError) Error() string {
	first := e.Devices[0]
	return fmt.Sprintf("nothing describes device %s of node %s, so its cost is not known", first.Device, first.Pool)
}

// Grants are what the results of a claim of this driver give. Access for monitoring gives nothing. The error is of type
// *UnknownDeviceError, beside the grants of the devices that are known.
//
// A share of a GPU costs gpus 1 and the memory and compute that it consumes; an exclusive GPU gpus 1, a MIG instance
// mig/<profile> 1, and each its published memory and compute.
func Grants(claim *resourceapi.ResourceClaim, facts Facts) ([]Grant, error) {
	if claim.Status.Allocation == nil {
		return nil, nil
	}
	var grants []Grant
	var unknown []DeviceID
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		if result.Driver != v1alpha1.DriverName || ptr.Deref(result.AdminAccess, false) {
			continue
		}
		id := DeviceID{result.Pool, result.Device}
		device, found := facts.find(id)
		if !found {
			unknown = append(unknown, id)
			continue
		}
		grants = append(grants, Grant{Request: result.Request, Device: id, Pool: device.Pool, Amounts: costOf(result, device)})
	}
	if len(unknown) > 0 {
		return grants, &UnknownDeviceError{Devices: unknown}
	}
	return grants, nil
}

// Total sums grants by pool.
func Total(grants []Grant) Charges {
	charges := Charges{}
	for _, grant := range grants {
		charges.Add(grant.Pool, grant.Amounts)
	}
	return charges
}

// CostOf is what the allocation of a claim costs; nothing where it has none.
func CostOf(claim *resourceapi.ResourceClaim, facts Facts) (Charges, error) {
	grants, err := Grants(claim, facts)
	return Total(grants), err
}

func costOf(result *resourceapi.DeviceRequestAllocationResult, device Device) Amounts {
	if !device.Shared {
		return wholeDevice(device)
	}
	return Amounts{
		v1alpha1.QuotaGPUs:    1,
		v1alpha1.QuotaMemory:  consumed(result, v1alpha1.CapacityMemory, device.Memory),
		v1alpha1.QuotaCompute: consumed(result, v1alpha1.CapacityCompute, device.Compute),
	}
}

func wholeDevice(device Device) Amounts {
	name := v1alpha1.QuotaGPUs
	if device.Profile != "" {
		name = v1alpha1.QuotaMIGPrefix + device.Profile
	}
	return Amounts{name: 1, v1alpha1.QuotaMemory: device.Memory, v1alpha1.QuotaCompute: device.Compute}
}

// consumed is what a share consumes; a share that does not say so may use the whole.
func consumed(result *resourceapi.DeviceRequestAllocationResult, name resourceapi.QualifiedName, whole int64) int64 {
	quantity, found := result.ConsumedCapacity[name]
	if !found {
		return whole
	}
	return wholeOf(quantity)
}
