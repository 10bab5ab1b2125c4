// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/library"
)

// Recover is called once at the start, before kubelet is served. A record of an earlier boot is marked as such: what it
// speaks of is gone, but its claims still have their GPUs. Then it maintains.
func (p *Preparer) Recover(ctx context.Context) error {
	unlock, err := p.Records.Lock()
	if err != nil {
		return fmt.Errorf("locking the checkpoint: %w", err)
	}
	recorded, err := p.Records.Claims()
	if err == nil && recorded.BootID != p.BootID {
		afterBoot(&recorded, p.BootID)
		err = p.Records.SaveClaims(recorded)
	}
	unlock()
	if err != nil {
		return fmt.Errorf("recovering the prepared claims: %w", err)
	}
	return p.Maintain(ctx)
}

// afterBoot marks what a new boot of the node has taken away. MIG mode that can be turned on without a reset does not
// survive a boot either, so nothing is owed.
func afterBoot(recorded *checkpoint.Claims, bootID string) {
	recorded.BootID = bootID
	recorded.MIGModeFoundOff = nil
	recorded.Idle = nil
	for uid, claim := range recorded.Claims {
		if claim.State == checkpoint.Preparing && !claim.WasLost {
			delete(recorded.Claims, uid)
			continue
		}
		recorded.Claims[uid] = lost(claim)
	}
}

// lost is the claim with nothing of it left but that it has its GPUs.
func lost(claim checkpoint.Claim) checkpoint.Claim {
	claim.State, claim.WasLost, claim.Library = checkpoint.Lost, false, ""
	claim.Results = slices.Clone(claim.Results)
	for i := range claim.Results {
		claim.Results[i].Instance = nil
		claim.Results[i].CDIDevices = nil
		claim.Results[i].LimitsBackend, claim.Results[i].MustHold = "", false
	}
	return claim
}

// Maintain takes back what no prepared claim accounts for: attempts cut short, CDI specs, shares, and MIG instances on
// GPUs that are published for MIG; it turns MIG mode off where that is owed, brings the compute policies of prepared claims
// in line with their GPUs', and writes anew what somebody has removed of a prepared claim's files. It does all it can and
// returns what it could not do. Nothing is under way meanwhile, since it holds the node's lock.
func (p *Preparer) Maintain(ctx context.Context) error {
	unlock, err := p.Records.Lock()
	if err != nil {
		return fmt.Errorf("locking the checkpoint: %w", err)
	}
	defer unlock()
	recorded, published, err := p.read()
	if err != nil {
		return err
	}
	var failed []error
	for _, claim := range recorded.Sorted() {
		if claim.State != checkpoint.Preparing {
			continue
		}
		if err := p.undoAttempt(ctx, &recorded, claim); err != nil {
			failed = append(failed, fmt.Errorf("taking back what was begun for %s: %w", describe(claim), err))
		}
	}
	failed = append(failed, p.dropIdle(ctx, &recorded, published),
		removeUnknown("CDI spec", p.Specs, recorded), removeUnknown("share", p.Shares, recorded),
		p.destroyUnknown(ctx, recorded, published), p.modesBack(ctx, &recorded), p.policies(&recorded, &published),
		p.follow(ctx, &recorded, published), p.keepMPS(ctx, recorded), p.restore(&recorded), p.keepLibrary(recorded))
	return errors.Join(failed...)
}

// keepLibrary places the library before the first claim needs it, and removes the versions that no claim was prepared with.
func (p *Preparer) keepLibrary(recorded checkpoint.Claims) error {
	if _, err := p.Library.Place(""); err != nil {
		return fmt.Errorf("placing the library: %w", err)
	}
	var inUse []string
	for _, claim := range recorded.Claims {
		inUse = append(inUse, claim.Library)
	}
	if err := p.Library.Sweep(inUse); err != nil {
		return fmt.Errorf("removing old versions of the library: %w", err)
	}
	return nil
}

// restore writes the CDI specs and shares of prepared claims that are not there, as after a tmpfs was mounted anew:
// kubelet does not ask again, but a container that starts again needs them.
func (p *Preparer) restore(recorded *checkpoint.Claims) error {
	specs, err := p.Specs.List()
	if err != nil {
		return fmt.Errorf("listing the CDI specs: %w", err)
	}
	shares, err := p.Shares.List()
	if err != nil {
		return fmt.Errorf("listing the shares: %w", err)
	}
	var failed []error
	for _, claim := range recorded.Sorted() {
		complete := slices.Contains(specs, claim.UID) && (slices.Contains(shares, claim.UID) || !slices.ContainsFunc(claim.Results, hasShare)) &&
			(claim.Library == "" || p.Library.Holds(claim.Library))
		if claim.State != checkpoint.Prepared || complete {
			continue
		}
		p.Log.Info("Writing the files of a prepared claim anew", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID)
		if err := p.restoreClaim(recorded, claim); err != nil {
			failed = append(failed, fmt.Errorf("restoring the files of %s: %w", describe(claim), err))
		}
	}
	return errors.Join(failed...)
}

// restoreClaim writes the files of one claim anew. A version of the library that is gone is gone for good: what starts from
// then on starts with the one of new shares.
func (p *Preparer) restoreClaim(recorded *checkpoint.Claims, claim checkpoint.Claim) error {
	_, err := p.files(claim)
	if !errors.Is(err, library.ErrGone) {
		return err
	}
	if claim.Library, err = p.libraryFor(claim); err != nil {
		return err
	}
	if _, err := p.files(claim); err != nil {
		return err
	}
	recorded.Claims[claim.UID] = claim
	if err := p.Records.SaveClaims(*recorded); err != nil {
		return fmt.Errorf("recording the library's version: %w", err)
	}
	return nil
}

// perClaim is what is kept by claim UID outside the checkpoint.
type perClaim interface {
	List() ([]string, error)
	Remove(claimUID string) error
}

func removeUnknown(what string, door perClaim, recorded checkpoint.Claims) error {
	uids, err := door.List()
	if err != nil {
		return fmt.Errorf("listing each %s: %w", what, err)
	}
	var failed []error
	for _, uid := range uids {
		// An attempt that could not be taken back keeps its place until it can be.
		if claim, known := recorded.Claims[uid]; known && claim.State != checkpoint.Lost {
			continue
		}
		if err := door.Remove(uid); err != nil {
			failed = append(failed, fmt.Errorf("removing the %s that no claim accounts for: %w", what, err))
		}
	}
	return errors.Join(failed...)
}

// destroyUnknown destroys the MIG instances that no claim accounts for.
func (p *Preparer) destroyUnknown(ctx context.Context, recorded checkpoint.Claims, published checkpoint.Published) error {
	if !slices.ContainsFunc(published.GPUs, dynamic) {
		return nil
	}
	look, err := p.Hardware.Look(ctx)
	failed := []error{err}
	for uuid, orphans := range Orphans(look, recorded, published) {
		for _, i := range orphans {
			p.Log.Info("Destroying a MIG instance that no claim accounts for", "gpu", uuid, "profile", i.Profile, "start", i.Start)
			if err := p.Hardware.DestroyInstance(ctx, uuid, i.GIID); err != nil {
				failed = append(failed, fmt.Errorf("destroying the MIG instance %s at %d of GPU %s, which no claim accounts for: %w",
					i.Profile, i.Start, uuid, err))
			}
		}
	}
	return errors.Join(failed...)
}

// Unfinished is true where the records themselves show that something is to be done: an attempt cut short, MIG mode that is
// owed to be off, an instance that was kept long enough, or one that is another MIG device now.
func Unfinished(recorded checkpoint.Claims, published checkpoint.Published, now time.Time) bool {
	for _, claim := range recorded.Claims {
		if claim.State == checkpoint.Preparing {
			return true
		}
	}
	owed := slices.ContainsFunc(recorded.MIGModeFoundOff, func(uuid string) bool { return !needsMIG(uuid, recorded, published) })
	return owed || Moved(recorded, published) || len(outdated(recorded, published, now)) > 0
}

// Orphans are the MIG instances that no prepared claim accounts for, by the UUID of their GPU, on the GPUs whose instances
// come and go with claims. Instances on any other GPU are a layout's, or somebody else's business.
func Orphans(look gpu.Node, recorded checkpoint.Claims, published checkpoint.Published) map[string][]gpu.Instance {
	orphans := map[string][]gpu.Instance{}
	for _, offered := range published.GPUs {
		g := look.ByUUID(offered.Facts.UUID)
		if g == nil || !dynamic(offered) {
			continue
		}
		for _, i := range g.Instances {
			if !heldByOther("", g.UUID, i, recorded) {
				orphans[g.UUID] = append(orphans[g.UUID], i)
			}
		}
	}
	return orphans
}
