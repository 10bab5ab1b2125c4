// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// standing is a MIG instance of a static layout, given to one claim or in shares.
func standing(
	result checkpoint.Result, r *resourceapi.DeviceRequestAllocationResult, offered *checkpoint.PublishedGPU,
) (checkpoint.Result, error) {
	i := slices.IndexFunc(offered.Instances, func(s checkpoint.Standing) bool {
		return devices.PlacementName(offered.Minor, s.Placement.GPU()) == result.Device
	})
	if i < 0 {
		return result, refuse("device %s is no MIG instance of GPU %s now; its layout may be changing", result.Device, result.GPU)
	}
	instance := offered.Instances[i]
	result.Standing = true
	result.Placement = &checkpoint.Placement{Profile: instance.Profile, Start: instance.Start, Size: instance.Size}
	result, err := amounts(result, r, offered.Form.Sharing, instance.MemoryBytes, int64(instance.Compute))
	if result.Shared {
		result.DeviceCompute = int64(instance.Compute)
	}
	return result, err
}

// findStanding finds the instance of a static layout as it is now.
func (p *Preparer) findStanding(ctx context.Context, r checkpoint.Result) (*checkpoint.Instance, error) {
	look, lookErr := p.Hardware.Look(ctx)
	g := look.ByUUID(r.GPU)
	if g == nil {
		return nil, errors.Join(refuse("GPU %s of device %s is not to be seen", r.GPU, r.Device), lookErr)
	}
	for _, i := range g.Instances {
		if at(i, *r.Placement) && i.UUID != "" {
			return &checkpoint.Instance{GIID: i.GIID, UUID: i.UUID}, nil
		}
	}
	return nil, refuse("the MIG instance of device %s is being made; it is tried again", r.Device)
}

// Moved is true where an instance of a static layout that a prepared claim has was made anew, and is another MIG device now.
func Moved(recorded checkpoint.Claims, published checkpoint.Published) bool {
	for _, claim := range recorded.Claims {
		if len(moved(claim, published)) > 0 {
			return true
		}
	}
	return false
}

// moved are the results of a prepared claim, by their place in the record, whose instances are other MIG devices now.
func moved(claim checkpoint.Claim, published checkpoint.Published) map[int]string {
	if claim.State != checkpoint.Prepared {
		return nil
	}
	found := map[int]string{}
	for i, r := range claim.Results {
		offered := published.ByUUID(r.GPU)
		if !r.Standing || offered == nil || r.Instance == nil {
			continue
		}
		now := offered.At(r.Placement.GPU())
		// While the instance is missing, what is offered is what it was.
		if now != nil && now.Taint != v1alpha1.TaintReason(v1alpha1.ReasonDividing) && now.UUID != r.Instance.UUID {
			found[i] = now.UUID
		}
	}
	return found
}

// follow has prepared claims follow their instances: containers that start from now on get the MIG device that is there.
func (p *Preparer) follow(ctx context.Context, recorded *checkpoint.Claims, published checkpoint.Published) error {
	var failed []error
	for _, claim := range recorded.Sorted() {
		changed := moved(claim, published)
		if len(changed) == 0 {
			continue
		}
		p.Log.Info("The MIG instance of a prepared claim was made anew", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID)
		if err := p.followClaim(ctx, recorded, claim, changed); err != nil {
			failed = append(failed, fmt.Errorf("giving %s its MIG instance anew: %w", describe(claim), err))
		}
	}
	return errors.Join(failed...)
}

func (p *Preparer) followClaim(ctx context.Context, recorded *checkpoint.Claims, claim checkpoint.Claim, changed map[int]string) error {
	claim.Results = slices.Clone(claim.Results)
	for i := range changed {
		instance, err := p.findStanding(ctx, claim.Results[i])
		if err != nil {
			return err
		}
		claim.Results[i].Instance = instance
	}
	if err := p.serve(ctx, claim); err != nil {
		return err
	}
	if _, err := p.files(claim); err != nil {
		return err
	}
	recorded.Claims[claim.UID] = claim
	if err := p.Records.SaveClaims(*recorded); err != nil {
		return fmt.Errorf("recording the instance: %w", err)
	}
	return nil
}
