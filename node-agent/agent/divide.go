// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/claims"
	"github.com/sluice-gpu/sluice/node-agent/holders"
)

// divide brings MIG instances in line with static layouts before anything of them is published. Where that changes what is
// there, the plan is made anew.
func (a *Agent) divide(ctx context.Context, w *world, p plan) (plan, error) {
	if w.failed != "" || w.foreign != "" {
		return p, nil
	}
	result, err := a.Divider.Divide(ctx, w.look)
	troubles := a.foreignInUse(ctx, *w, p)
	maps.Copy(troubles, result.Troubles)
	if err != nil {
		err = fmt.Errorf("dividing GPUs: %w", err)
	}
	same := equality.Semantic.DeepEqual(troubles, a.memory.troubles)
	repaired := a.repairs(result.Foreign)
	a.tellOfForeign(ctx, *w, troubles, repaired)
	if err == nil { // otherwise not everything was looked at
		a.tellForeignEnded(ctx, *w, troubles, repaired)
	}
	a.memory.troubles = troubles
	a.rememberForeign(w.now, repaired)
	if !result.Changed && same {
		return p, err
	}
	if result.Changed {
		a.look(ctx, w)
	}
	again, recordErr := a.record(*w)
	if recordErr != nil {
		return p, errors.Join(err, recordErr)
	}
	return again, err
}

// nextFor is when the next pass is due at the latest, where GPUs are half divided or idle instances have to go.
func (a *Agent) nextFor(w world, p plan, next time.Duration) time.Duration {
	for _, trouble := range a.memory.troubles {
		if trouble.Reason == v1alpha1.ReasonDividing {
			next = min(next, a.Intervals.Pause)
		}
	}
	if end, kept := claims.IdleEnds(p.claims); kept {
		next = min(next, max(a.Intervals.Pause, end.Sub(w.now)))
	}
	return next
}

// processes are those on each GPU that is seen. They are for people: where NVML does not say, there are none.
func (a *Agent) processes(ctx context.Context, w world, p plan) map[string][]holders.Process {
	found := map[string][]holders.Process{}
	if w.failed != "" {
		return found
	}
	for _, g := range w.look.GPUs {
		list, err := a.Holders.On(ctx, g.UUID, p.claims)
		if err != nil {
			a.Log.V(1).Info("It is not known who holds a GPU", "gpu", g.UUID, "err", err.Error())
			continue
		}
		found[g.UUID] = list
	}
	return found
}

// held are the placements at which claims have MIG instances, by the UUID of their GPU.
func (p plan) held() map[string][]gpu.Placement {
	held := map[string][]gpu.Placement{}
	for uuid := range p.inUse {
		held[uuid] = p.claims.HeldOn(uuid)
	}
	return held
}
