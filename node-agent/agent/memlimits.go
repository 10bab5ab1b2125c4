// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/cgroups"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// MemoryLimits are those that the driver holds.
type MemoryLimits interface {
	// Probe says whether the driver of a GPU can hold them.
	Probe(ctx context.Context, facts checkpoint.Facts) memlimits.Probe
	// Fallbacks are the claims that the library alone holds although the pool would have the driver do it, each once.
	Fallbacks(claims checkpoint.Claims, published checkpoint.Published, held map[string]v1alpha1.GPUMemoryLimits) ([]cgroups.Fallback, error)
}

// ReasonLimitsByLibrary is the event of a pod whose memory the library alone holds although the pool would have the driver do it.
const ReasonLimitsByLibrary = "MemoryLimitsByLibrary"

// probes tries the driver's memory limits on the GPUs whose form depends on them.
func (a *Agent) probes(ctx context.Context, w world) map[string]memlimits.Probe {
	if w.failed != "" || w.gpuNode == nil {
		return nil
	}
	depends := map[string]bool{}
	for _, d := range w.gpuNode.Decisions() {
		depends[d.UUID] = memlimits.Depends(d)
	}
	probes := map[string]memlimits.Probe{}
	for _, g := range w.look.GPUs {
		if depends[g.UUID] {
			probes[g.UUID] = a.MemoryLimits.Probe(ctx, checkpoint.FactsOf(g, w.look.DriverVersion))
		}
	}
	return probes
}

// tellFallbacks tells pods once that the library alone holds their memory. An event that cannot be written is not tried
// again: the GPUNode's status says the same.
func (a *Agent) tellFallbacks(ctx context.Context, p plan) error {
	held := map[string]v1alpha1.GPUMemoryLimits{}
	for _, o := range p.outcomes {
		held[o.Facts.UUID] = o.Limits
	}
	fallbacks, err := a.MemoryLimits.Fallbacks(p.claims, p.record, held)
	if err != nil {
		return fmt.Errorf("finding out whose memory the library alone holds: %w", err)
	}
	for _, f := range fallbacks {
		for _, pod := range f.Claim.Pods {
			message := "GPU memory limits are held by Sluice's library alone: " + f.Message
			if err := a.Teller.Tell(ctx, f.Claim.Namespace, pod, corev1.EventTypeNormal, ReasonLimitsByLibrary, message); err != nil {
				a.Log.Info("A pod is not told what holds its memory", "pod", f.Claim.Namespace+"/"+pod.Name, "err", err.Error())
			}
		}
	}
	return nil
}

// SetMemoryLimits limits what the processes of a cgroup hold of a GPU's memory.
func (d *Driver) SetMemoryLimits(ctx context.Context, gpuUUID, cgroup string, soft, hard uint64) error {
	door, err := d.open()
	if err != nil {
		return err
	}
	return door.SetMemoryLimits(ctx, gpuUUID, cgroup, soft, hard) //nolint:wrapcheck // the door's errors say what was being done
}

// MemoryLimits reads the limits of a cgroup on a GPU.
func (d *Driver) MemoryLimits(ctx context.Context, gpuUUID, cgroup string) (nvml.MemoryLimits, error) {
	door, err := d.open()
	if err != nil {
		return nvml.MemoryLimits{}, err
	}
	return door.MemoryLimits(ctx, gpuUUID, cgroup) //nolint:wrapcheck // the door's errors say what was being done
}
