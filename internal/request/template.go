// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/classes"
)

// Template is the spec of the ResourceClaimTemplate for a canonical request. Fields that the API server would fill in are
// written out, so that what it stores equals what is made here.
func Template(canonical *Canonical) resourceapi.ResourceClaimTemplateSpec {
	devices := resourceapi.DeviceClaim{}
	for i := range canonical.Requests {
		request := &canonical.Requests[i]
		if canonical.Form == MIG {
			devices.Requests = append(devices.Requests, alternativesOf(canonical.Pool, request))
			continue
		}
		devices.Requests = append(devices.Requests, resourceapi.DeviceRequest{
			Name: request.Name,
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: classes.ForPool(canonical.Pool),
				AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
				Count:           request.Count,
				Capacity:        capacityOf(request),
			},
		})
	}
	if canonical.Distinct {
		devices.Constraints = []resourceapi.DeviceConstraint{differentGPUs(canonical.Requests)}
	}
	return resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: devices}}
}

// differentGPUs keeps the requests off each other's GPUs.
func differentGPUs(requests []Request) resourceapi.DeviceConstraint {
	constraint := resourceapi.DeviceConstraint{
		DistinctAttribute: ptr.To(resourceapi.FullyQualifiedName(v1alpha1.DriverName + "/" + v1alpha1.AttributeUUID)),
	}
	for i := range requests {
		constraint.Requests = append(constraint.Requests, requests[i].Name)
	}
	return constraint
}

// alternativesOf offers the profiles of a request one after another. The amounts stay in as "at least": boards differ a
// little in what an instance of the same name has.
func alternativesOf(pool string, request *Request) resourceapi.DeviceRequest {
	made := resourceapi.DeviceRequest{Name: request.Name}
	for _, profile := range request.Profiles {
		made.FirstAvailable = append(made.FirstAvailable, resourceapi.DeviceSubRequest{
			Name:            strings.ReplaceAll(profile, ".", "-"),
			DeviceClassName: classes.ForProfile(profile),
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				// A device of the class without the attribute is none of the pool's, and no error for the whole claim.
				Expression: `device.attributes["` + v1alpha1.DriverName + `"].?` + v1alpha1.AttributePool + `.orValue("") == "` + pool + `"`,
			}}},
			AllocationMode: resourceapi.DeviceAllocationModeExactCount,
			Count:          request.Count,
			Capacity:       capacityOf(request),
		})
	}
	return made
}

func capacityOf(request *Request) *resourceapi.CapacityRequirements {
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	if request.MemoryMi > 0 {
		requests[v1alpha1.CapacityMemory] = *resource.NewQuantity(request.MemoryMi*mebi, resource.BinarySI)
	}
	if request.Compute > 0 {
		requests[v1alpha1.CapacityCompute] = *resource.NewQuantity(request.Compute, resource.DecimalSI)
	}
	if len(requests) == 0 {
		return nil
	}
	return &resourceapi.CapacityRequirements{Requests: requests}
}
