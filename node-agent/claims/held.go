// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// MemoryLimits is the door to the memory limits that NVIDIA's driver holds.
type MemoryLimits interface {
	// HeldBy says what holds the memory limits of shares on a GPU in its form.
	HeldBy(ctx context.Context, form v1alpha1.GPUDecision, facts checkpoint.Facts) v1alpha1.GPUMemoryLimits
	// Release takes back what the shares of a claim are guaranteed.
	Release(ctx context.Context, claimUID string) error
}

// hold notes in the claim which of its shares the driver is to hold, and refuses those that it should and cannot.
func (p *Preparer) hold(ctx context.Context, claim *checkpoint.Claim, published *checkpoint.Published) error {
	for i := range claim.Results {
		r := &claim.Results[i]
		r.LimitsBackend, r.MustHold = "", false
		offered := published.ByUUID(r.GPU)
		if !enforced(*r) || byMPS(*r) || offered == nil {
			continue
		}
		held := p.Limits.HeldBy(ctx, offered.Form, offered.Facts)
		r.MustHold = memlimits.Demanded(offered.Form)
		if r.MustHold && held.HeldBy != v1alpha1.MemoryLimitsDriver {
			return refuse("%s: %s", r.Device, memlimits.Unheld(held))
		}
		r.LimitsBackend = held.Backend
	}
	return nil
}

// byDriver is true where the driver holds the memory limit of the result.
func byDriver(r checkpoint.Result) bool { return r.LimitsBackend != "" }

// unhold takes back what the driver guarantees to the claim. What cannot be taken back now is recorded and tried again;
// nothing waits for that.
func (p *Preparer) unhold(ctx context.Context, claim checkpoint.Claim) {
	if !slices.ContainsFunc(claim.Results, byDriver) {
		return
	}
	if err := p.Limits.Release(ctx, claim.UID); err != nil {
		p.Log.Error(err, "The driver still guarantees memory to a released claim; it is tried again", "claim", claim.Namespace+"/"+claim.Name)
	}
}
