// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// undo takes back whatever of a claim is there and forgets the claim. Where it fails, the claim stays recorded, and what
// was taken back already is not missed the next time.
func (p *Preparer) undo(ctx context.Context, recorded *checkpoint.Claims, claim checkpoint.Claim) error {
	if err := p.takeBack(ctx, *recorded, claim); err != nil {
		return err
	}
	delete(recorded.Claims, claim.UID)
	return p.saveUndone(ctx, recorded, claim)
}

// undoAttempt takes back an attempt to prepare. A claim that was prepared in an earlier boot goes on having its GPU.
func (p *Preparer) undoAttempt(ctx context.Context, recorded *checkpoint.Claims, claim checkpoint.Claim) error {
	if !claim.WasLost {
		return p.undo(ctx, recorded, claim)
	}
	if err := p.takeBack(ctx, *recorded, claim); err != nil {
		return err
	}
	recorded.Claims[claim.UID] = lost(claim)
	return p.saveUndone(ctx, recorded, claim)
}

// takeBack removes what Prepare makes outside the checkpoint, as far as it is there.
func (p *Preparer) takeBack(ctx context.Context, recorded checkpoint.Claims, claim checkpoint.Claim) error {
	if err := p.Specs.Remove(claim.UID); err != nil {
		return fmt.Errorf("removing the CDI spec: %w", err)
	}
	if slices.ContainsFunc(claim.Results, creates) {
		if err := p.destroyInstances(ctx, claim, recorded); err != nil {
			return err
		}
	}
	p.unhold(ctx, claim)
	if err := p.Shares.Remove(claim.UID); err != nil {
		return fmt.Errorf("removing the shares: %w", err)
	}
	return nil
}

func (p *Preparer) saveUndone(ctx context.Context, recorded *checkpoint.Claims, claim checkpoint.Claim) error {
	if err := p.Records.SaveClaims(*recorded); err != nil {
		return fmt.Errorf("recording that nothing of the claim is left: %w", err)
	}
	if slices.ContainsFunc(claim.Results, byMPS) {
		// A daemon that is not stopped holds nobody up, and is looked after again and again.
		if err := p.keepMPS(ctx, *recorded); err != nil {
			p.Log.Error(err, "An MPS daemon was not stopped; it is tried again")
		}
	}
	if slices.ContainsFunc(claim.Results, creates) {
		// The claim is released whatever becomes of the mode, which Maintain tries again.
		if err := p.modesBack(ctx, recorded); err != nil {
			p.Log.Error(err, "MIG mode was not turned back off; it is tried again")
		}
	}
	return nil
}

// destroyInstances destroys what is at the claim's placements. It looks for itself: a record of an unfinished step has no
// ids, and ids are used again.
func (p *Preparer) destroyInstances(ctx context.Context, claim checkpoint.Claim, recorded checkpoint.Claims) error {
	look, lookErr := p.Hardware.Look(ctx)
	for _, r := range claim.Results {
		if !creates(r) {
			continue
		}
		g := look.ByUUID(r.GPU)
		if g == nil {
			// A GPU that a good look does not show has fallen away, and its instances with it.
			if lookErr != nil {
				return fmt.Errorf("looking for the instance %s: %w", r.Device, lookErr)
			}
			continue
		}
		for _, i := range g.Instances {
			if !at(i, *r.Placement) || heldByOther(claim.UID, g.UUID, i, recorded) {
				continue
			}
			if err := p.Hardware.DestroyInstance(ctx, g.UUID, i.GIID); err != nil {
				return fmt.Errorf("destroying the MIG instance %s (%s): %w", r.Device, i.UUID, err)
			}
		}
	}
	return nil
}

func at(i gpu.Instance, p checkpoint.Placement) bool {
	return i.Profile == p.Profile && i.Start == p.Start
}

// heldByOther is true where another claim has the instance, or it is kept for a next one: a record of an attempt that was
// refused must not take it.
func heldByOther(uid, gpuUUID string, i gpu.Instance, recorded checkpoint.Claims) bool {
	for _, other := range recorded.Claims {
		if other.UID == uid || other.State != checkpoint.Prepared {
			continue
		}
		for _, r := range other.Results {
			if has(r) && r.GPU == gpuUUID && at(i, *r.Placement) {
				return true
			}
		}
	}
	return recorded.IdleAt(gpuUUID, gpu.Placement{Profile: i.Profile, Start: i.Start})
}

// modesBack turns MIG mode off again where this agent turned it on and nothing needs it any more.
func (p *Preparer) modesBack(ctx context.Context, recorded *checkpoint.Claims) error {
	published, err := p.Records.Published()
	if err != nil {
		return fmt.Errorf("reading the published devices: %w", err)
	}
	owed := slices.DeleteFunc(slices.Clone(recorded.MIGModeFoundOff), func(uuid string) bool {
		return needsMIG(uuid, *recorded, published)
	})
	if len(owed) == 0 {
		return nil
	}
	look, lookErr := p.Hardware.Look(ctx)
	failed := lookErr
	for _, uuid := range owed {
		g := look.ByUUID(uuid)
		if g != nil && g.MIGMode == gpu.MIGEnabled {
			if len(g.Instances) > 0 {
				continue
			}
			if err := p.Hardware.SetMIGMode(ctx, uuid, false); err != nil {
				failed = errors.Join(failed, fmt.Errorf("turning off MIG mode of GPU %s: %w", uuid, err))
				continue
			}
		}
		if g == nil && lookErr != nil {
			continue
		}
		recorded.MIGModeFoundOff = slices.DeleteFunc(recorded.MIGModeFoundOff, func(u string) bool { return u == uuid })
		if err := p.Records.SaveClaims(*recorded); err != nil {
			return fmt.Errorf("recording that MIG mode is off again: %w", err)
		}
	}
	return failed
}

func needsMIG(uuid string, recorded checkpoint.Claims, published checkpoint.Published) bool {
	if offered := published.ByUUID(uuid); offered != nil && devices.Static(offered.Form) {
		return true
	}
	if slices.ContainsFunc(recorded.Idle, func(i checkpoint.Idle) bool { return i.GPU == uuid }) {
		return true
	}
	for _, claim := range recorded.Claims {
		for _, r := range claim.Results {
			if r.GPU == uuid && creates(r) && claim.State != checkpoint.Lost {
				return true
			}
		}
	}
	return false
}
