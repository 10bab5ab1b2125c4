// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// capped is true where shares of a GPU are never given more compute than was granted.
func capped(offered *checkpoint.PublishedGPU) bool {
	return offered.Form.Compute == v1alpha1.ComputeCap
}

func policy(capped bool) uint32 {
	if capped {
		return limits.PolicyCap
	}
	return limits.PolicyShare
}

// policyDiffers is true where a result goes by another policy than its GPU now has.
func policyDiffers(r checkpoint.Result, published *checkpoint.Published) bool {
	offered := published.ByUUID(r.GPU)
	return r.Enforced && offered != nil && r.Capped != capped(offered)
}

// PolicyDiffers is true where a prepared claim goes by another compute policy than its GPU now has.
func PolicyDiffers(recorded checkpoint.Claims, published checkpoint.Published) bool {
	for _, claim := range recorded.Claims {
		if claim.State == checkpoint.Prepared && slices.ContainsFunc(claim.Results, func(r checkpoint.Result) bool {
			return policyDiffers(r, &published)
		}) {
			return true
		}
	}
	return false
}

// policies brings the compute policies of prepared claims in line with their GPUs'. Running processes go by them at once. The
// record comes last: what is not recorded is written again.
func (p *Preparer) policies(recorded *checkpoint.Claims, published *checkpoint.Published) error {
	var failed []error
	changed := false
	for _, claim := range recorded.Sorted() {
		if claim.State != checkpoint.Prepared {
			continue
		}
		results := slices.Clone(claim.Results)
		for i, r := range results {
			if !policyDiffers(r, published) {
				continue
			}
			if err := p.Shares.SetPolicy(claim.UID, r.Index, policy(!r.Capped)); err != nil && !errors.Is(err, limits.ErrNoShare) {
				failed = append(failed, fmt.Errorf("changing the compute policy of %s: %w", describe(claim), err))
				continue
			}
			results[i].Capped = !r.Capped
			changed = true
		}
		claim.Results = results
		recorded.Claims[claim.UID] = claim
	}
	if changed {
		if err := p.Records.SaveClaims(*recorded); err != nil {
			failed = append(failed, fmt.Errorf("recording the compute policies: %w", err))
		}
	}
	return errors.Join(failed...)
}
