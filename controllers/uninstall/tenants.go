// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// refuseTenants stops where claims hold devices: their containers would go on unheld and their MIG instances would stay.
func (o Options) refuseTenants(ctx context.Context) error {
	claims := &resourceapi.ResourceClaimList{}
	if err := o.Client.List(ctx, claims); err != nil {
		return fmt.Errorf("listing the ResourceClaims: %w", err)
	}
	if found := tenants(claims.Items); len(found) > 0 {
		return fmt.Errorf("%w by %s; delete what uses them first", ErrTenants, enumerate(found))
	}
	return nil
}

// tenants names who holds devices of Sluice: the pods, or the claim where there are none.
func tenants(claims []resourceapi.ResourceClaim) []string {
	var found []string
	for _, claim := range claims {
		allocation := claim.Status.Allocation
		if allocation == nil || !slices.ContainsFunc(allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == v1alpha1.DriverName
		}) {
			continue
		}
		var pods []string
		for _, user := range claim.Status.ReservedFor {
			if user.Resource == "pods" {
				pods = append(pods, user.Name)
			}
		}
		name := "claim " + claim.Namespace + "/" + claim.Name
		if len(pods) > 0 {
			name += " (pod " + strings.Join(pods, ", ") + ")"
		}
		found = append(found, name)
	}
	return found
}
