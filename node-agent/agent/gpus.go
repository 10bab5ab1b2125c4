// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/node-agent/usage"
)

// showGPUs shows in metrics what the GPUs have, offer and have granted.
func (a *Agent) showGPUs(p plan) {
	var gpus []usage.GPU
	for _, o := range p.outcomes {
		if o.Facts.Product == "" {
			continue // decided, but never seen
		}
		g := usage.GPU{
			Device: devices.Name(o.Minor), UUID: o.Facts.UUID, Physical: o.Facts.MemoryBytes, Tenants: p.inUse[o.Facts.UUID],
			Instances: map[string]int{},
		}
		if offered := p.record.ByUUID(o.Facts.UUID); offered != nil {
			g.Pool = offered.Form.Pool
			g.Published = devices.PublishedMemory(o.Facts.MemoryBytes, offered.Form.MemoryPercent)
			if offered.Form.Strategy == v1alpha1.MIGStatic {
				g.Published = 0
				for _, i := range offered.Instances {
					g.Published += devices.PublishedMemory(i.MemoryBytes, offered.Form.MemoryPercent)
				}
			}
		}
		for _, claim := range p.claims.Claims {
			for _, r := range claim.Results {
				if r.GPU == g.UUID && !r.Admin {
					g.Committed += r.Memory
				}
			}
		}
		if o.Seen != nil {
			for _, i := range o.Seen.Instances {
				g.Instances[i.Profile]++
			}
		}
		gpus = append(gpus, g)
	}
	a.Metrics.GPUs.Show(gpus)
}
