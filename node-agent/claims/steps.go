// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// carryOut records the claim, takes the steps and records that they are done. Where a step fails, all are taken back.
func (p *Preparer) carryOut(
	ctx context.Context, recorded *checkpoint.Claims, claim checkpoint.Claim, published *checkpoint.Published,
) ([]checkpoint.Result, error) {
	off, err := p.modesToTurnOn(ctx, claim, published)
	if err != nil {
		return nil, err
	}
	idle := takeIdle(recorded, claim)
	if claim.Library, err = p.libraryFor(claim); err != nil {
		return nil, err
	}
	for _, uuid := range off {
		if !slices.Contains(recorded.MIGModeFoundOff, uuid) {
			recorded.MIGModeFoundOff = append(recorded.MIGModeFoundOff, uuid)
		}
	}
	recorded.BootID = p.BootID
	if slices.ContainsFunc(claim.Results, creates) {
		// A MIG instance must be traced to its claim. Shares and CDI specs carry the claim's UID: those that no recorded
		// claim accounts for are found by their names, so a claim without an instance is recorded once, when it is done.
		recorded.Claims[claim.UID] = claim
		if err := p.Records.SaveClaims(*recorded); err != nil {
			return nil, fmt.Errorf("recording that the claim is being prepared: %w", err)
		}
	}
	stepErr := p.steps(ctx, &claim, off, idle, *recorded, published)
	if stepErr == nil {
		claim.State, claim.WasLost = checkpoint.Prepared, false
		recorded.Claims[claim.UID] = claim
		if stepErr = p.Records.SaveClaims(*recorded); stepErr == nil {
			return claim.Results, nil
		}
	}
	// kubelet may have given up waiting, which ends ctx; what was begun is taken back all the same.
	if undoErr := p.undoAttempt(context.WithoutCancel(ctx), recorded, claim); undoErr != nil {
		return nil, fmt.Errorf("%w: %w; taking it back failed too and is tried again: %w", errNotDone, stepErr, undoErr)
	}
	return nil, fmt.Errorf("%w: %w", errNotDone, stepErr)
}

// modesToTurnOn are the GPUs of the claim whose MIG mode is off and may be turned on.
func (p *Preparer) modesToTurnOn(
	ctx context.Context, claim checkpoint.Claim, published *checkpoint.Published,
) ([]string, error) {
	if !slices.ContainsFunc(claim.Results, creates) {
		return nil, nil
	}
	look, lookErr := p.Hardware.Look(ctx)
	var off []string
	for _, r := range claim.Results {
		if !creates(r) || slices.Contains(off, r.GPU) {
			continue
		}
		g := look.ByUUID(r.GPU)
		switch {
		case g == nil:
			return nil, errors.Join(refuse("GPU %s of device %s is not to be seen", r.GPU, r.Device), lookErr)
		case g.MIGMode == gpu.MIGEnabled:
		case g.MIGMode == gpu.MIGDisabled && published.ByUUID(r.GPU).Facts.MIGModeSwitchable:
			off = append(off, r.GPU)
		default:
			return nil, refuse("MIG mode of GPU %s is %s and cannot be turned on without a reset of the GPU", r.GPU, g.MIGMode)
		}
	}
	return off, nil
}

// creates is true where a MIG instance is to be made for the result.
func creates(r checkpoint.Result) bool { return r.Placement != nil && !r.Admin && !r.Standing }

// has is true where the claim has a MIG instance, made for it or not.
func has(r checkpoint.Result) bool { return r.Placement != nil && !r.Admin }

// hasShare is true where the result grants something, and not only a look.
func hasShare(r checkpoint.Result) bool { return !r.Admin }

// steps makes instances, shares and the CDI spec, and notes in the claim what they became.
func (p *Preparer) steps(
	ctx context.Context, claim *checkpoint.Claim, off []string, idle []checkpoint.Idle, recorded checkpoint.Claims,
	published *checkpoint.Published,
) error {
	for _, uuid := range off {
		if err := p.Hardware.SetMIGMode(ctx, uuid, true); err != nil {
			return fmt.Errorf("turning on MIG mode of GPU %s: %w", uuid, err)
		}
	}
	// The record holds the same slice: it must not change before it is saved as a whole.
	claim.Results = slices.Clone(claim.Results)
	if err := p.hold(ctx, claim, published); err != nil {
		return err
	}
	if err := p.reuse(ctx, claim, idle); err != nil {
		return err
	}
	for i := range claim.Results {
		if err := p.instance(ctx, &claim.Results[i], recorded); err != nil {
			return err
		}
	}
	if err := p.serve(ctx, *claim); err != nil {
		return err
	}
	ids, err := p.files(*claim)
	if err != nil {
		return err
	}
	for i, id := range ids {
		claim.Results[i].CDIDevices = []string{id}
	}
	return nil
}

// instance makes the MIG instance of a result, or finds the one that admin access is to look at.
func (p *Preparer) instance(ctx context.Context, r *checkpoint.Result, recorded checkpoint.Claims) error {
	if r.Placement == nil || r.Instance != nil {
		return nil
	}
	if r.Standing {
		var err error
		r.Instance, err = p.findStanding(ctx, *r)
		return err
	}
	if r.Admin {
		r.Instance = existing(*r, recorded)
		if r.Instance == nil {
			return refuse("admin access to %s: there is no such MIG instance now", r.Device)
		}
		return nil
	}
	gi, err := p.Hardware.CreateGPUInstance(ctx, r.GPU, r.Placement.GPU())
	if err != nil {
		return fmt.Errorf("creating the GPU instance %s: %w", r.Device, err)
	}
	r.Instance = &checkpoint.Instance{GIID: gi}
	_, uuid, err := p.Hardware.CreateComputeInstance(ctx, r.GPU, gi)
	if err != nil {
		return fmt.Errorf("creating the compute instance of %s: %w", r.Device, err)
	}
	r.Instance.UUID = uuid
	return nil
}

// existing is the instance that another claim has at the result's placement.
func existing(r checkpoint.Result, recorded checkpoint.Claims) *checkpoint.Instance {
	for _, claim := range recorded.Claims {
		for _, held := range claim.Results {
			if claim.State == checkpoint.Prepared && creates(held) && held.GPU == r.GPU && *held.Placement == *r.Placement {
				return held.Instance
			}
		}
	}
	return nil
}

func deviceUUID(r checkpoint.Result) string {
	if r.Placement != nil {
		return r.Instance.UUID
	}
	return r.GPU
}

// sameAllocation is true where the claim was prepared with exactly the results it has now.
func sameAllocation(old checkpoint.Claim, claim *resourceapi.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	next := 0
	for i, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != v1alpha1.DriverName {
			continue
		}
		if next == len(old.Results) {
			return false
		}
		o := old.Results[next]
		if o.Index != i || o.Request != r.Request || o.Pool != r.Pool || o.Device != r.Device ||
			o.ShareID != string(ptr.Deref(r.ShareID, "")) {
			return false
		}
		next++
	}
	return next == len(old.Results)
}
