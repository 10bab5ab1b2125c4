// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// keep notes the instances of a claim that are to outlive it, where its GPU's pool has that. Nothing is kept on a GPU that
// is being emptied.
func (p *Preparer) keep(recorded *checkpoint.Claims, claim checkpoint.Claim, published checkpoint.Published) {
	if claim.State != checkpoint.Prepared {
		return
	}
	for _, r := range claim.Results {
		offered := published.ByUUID(r.GPU)
		if !creates(r) || r.Instance == nil || offered == nil || keepTime(*offered) == 0 {
			continue
		}
		recorded.Idle = append(slices.Clone(recorded.Idle), checkpoint.Idle{
			GPU: r.GPU, Placement: *r.Placement, Until: p.Clock.Now().Add(keepTime(*offered)),
		})
	}
}

// keepTime is how long an instance of a GPU is kept without a claim.
func keepTime(offered checkpoint.PublishedGPU) time.Duration {
	form := offered.Form
	if !dynamic(offered) || form.Taint != "" {
		return 0
	}
	return time.Duration(form.KeepIdleSeconds) * time.Second
}

// dynamic is true where the GPU's MIG instances come and go with claims.
func dynamic(offered checkpoint.PublishedGPU) bool {
	return offered.Form.Partitioning == v1alpha1.PartitioningMIG && !devices.Static(offered.Form)
}

// outdated are the kept instances that nobody may have any more: their time is over, or their GPU's pool keeps none now.
func outdated(recorded checkpoint.Claims, published checkpoint.Published, now time.Time) []checkpoint.Idle {
	var list []checkpoint.Idle
	for _, i := range recorded.Idle {
		offered := published.ByUUID(i.GPU)
		if offered == nil || keepTime(*offered) == 0 || !now.Before(i.Until) {
			list = append(list, i)
		}
	}
	return list
}

// IdleEnds is when the next kept instance has to go; false where none is kept.
func IdleEnds(recorded checkpoint.Claims) (time.Time, bool) {
	var first time.Time
	for _, i := range recorded.Idle {
		if first.IsZero() || i.Until.Before(first) {
			first = i.Until
		}
	}
	return first, !first.IsZero()
}

// dropIdle destroys the kept instances whose time is over, and forgets them.
func (p *Preparer) dropIdle(ctx context.Context, recorded *checkpoint.Claims, published checkpoint.Published) error {
	old := outdated(*recorded, published, p.Clock.Now())
	if len(old) == 0 {
		return nil
	}
	look, failed := p.Hardware.Look(ctx)
	for _, idle := range old {
		g := look.ByUUID(idle.GPU)
		if g == nil && failed != nil {
			continue // it is not known what is there
		}
		if err := p.destroyIdle(ctx, g, idle, published); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		recorded.Idle = slices.DeleteFunc(slices.Clone(recorded.Idle), func(i checkpoint.Idle) bool { return i == idle })
	}
	if err := p.Records.SaveClaims(*recorded); err != nil {
		return fmt.Errorf("recording that idle instances are gone: %w", err)
	}
	return failed
}

// destroyIdle destroys a kept instance, unless it has come to belong to a layout or is gone.
func (p *Preparer) destroyIdle(ctx context.Context, g *gpu.GPU, idle checkpoint.Idle, published checkpoint.Published) error {
	offered := published.ByUUID(idle.GPU)
	if g == nil || (offered != nil && devices.Static(offered.Form)) {
		return nil
	}
	for _, i := range g.Instances {
		if !at(i, idle.Placement) {
			continue
		}
		if err := p.Hardware.DestroyInstance(ctx, g.UUID, i.GIID); err != nil {
			return fmt.Errorf("destroying the idle MIG instance %s at %d: %w", i.Profile, i.Start, err)
		}
	}
	return nil
}

// takeIdle removes from the record the kept instances that the claim's placements need or are.
func takeIdle(recorded *checkpoint.Claims, claim checkpoint.Claim) []checkpoint.Idle {
	var taken []checkpoint.Idle
	for _, r := range claim.Results {
		if creates(r) {
			taken = append(taken, recorded.TakeIdle(r.GPU, *r.Placement)...)
		}
	}
	return taken
}

// reuse gives the claim's results the kept instances at exactly their placements, and destroys those that are in the way.
func (p *Preparer) reuse(ctx context.Context, claim *checkpoint.Claim, taken []checkpoint.Idle) error {
	if len(taken) == 0 {
		return nil
	}
	look, err := p.Hardware.Look(ctx)
	for _, idle := range taken {
		g := look.ByUUID(idle.GPU)
		if g == nil {
			return errors.Join(refuse("GPU %s is not to be seen", idle.GPU), err)
		}
		for _, i := range g.Instances {
			if !at(i, idle.Placement) {
				continue
			}
			user := slices.IndexFunc(claim.Results, func(r checkpoint.Result) bool {
				return creates(r) && r.GPU == idle.GPU && *r.Placement == idle.Placement
			})
			if user >= 0 && i.UUID != "" {
				if err := p.unheld(ctx, g.UUID, i); err != nil {
					return err
				}
				claim.Results[user].Instance = &checkpoint.Instance{GIID: i.GIID, UUID: i.UUID}
				continue
			}
			if err := p.Hardware.DestroyInstance(ctx, g.UUID, i.GIID); err != nil {
				return fmt.Errorf("destroying the idle MIG instance %s at %d: %w", i.Profile, i.Start, err)
			}
		}
	}
	return nil
}

// unheld refuses an instance on which a process of the last tenant still is. A new instance would be empty.
func (p *Preparer) unheld(ctx context.Context, gpuUUID string, i gpu.Instance) error {
	holders, err := p.Hardware.Holders(ctx, gpuUUID)
	if err != nil {
		return fmt.Errorf("finding out who is on the idle MIG instance %s at %d: %w", i.Profile, i.Start, err)
	}
	for _, h := range holders {
		if h.GIID == i.GIID {
			return refuse("the MIG instance %s at %d is still used by process %d; it is tried again", i.Profile, i.Start, h.PID)
		}
	}
	return nil
}
