// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// health is how a GPU is. A state that stays keeps its time.
func (f Facts) health(o publish.Outcome) v1alpha1.GPUHealth {
	v := o.Health
	if v.State == "" {
		return v1alpha1.GPUHealth{}
	}
	h := v1alpha1.GPUHealth{State: v.State, Reason: v.Reason, Message: shorten(v.Message, maxMessage), XID: v.XID, Since: ptr.To(f.Now)}
	i := slices.IndexFunc(f.Before.GPUs, func(b v1alpha1.GPUStatus) bool { return b.UUID == o.Facts.UUID })
	if i >= 0 && f.Before.GPUs[i].Health.State == v.State {
		h.Since = f.Before.GPUs[i].Health.Since
	}
	return h
}
