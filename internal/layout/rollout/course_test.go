// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/test/builders"
)

// course is a pool in which tenants come and go while layouts change.
type course struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	policy rollout.Policy
	gpus   []rollout.GPU
	// layouts are those that the boards can hold.
	layouts [][]layout.Count
}

func newCourse(t *testing.T, seed uint64) *course {
	t.Helper()
	c := &course{
		t: t, now: begin(), random: rand.New(rand.NewPCG(seed, 6)), //nolint:gosec // A seeded generator makes the test repeatable.
		policy: rollout.Policy{Grace: 5 * time.Minute},
	}
	c.policy.MaxUnavailable = 1 + c.random.IntN(3)
	c.policy.Evict = c.random.IntN(2) == 0
	board := layout.BoardOf(builders.Boards(t)["h100-80gb"])
	c.layouts = layout.All(board)
	for i := range 6 {
		c.gpus = append(c.gpus, makeGPU(t, int32(i), func(g *rollout.GPU) {
			fresh(g)
			g.Board, g.Wanted = board, c.layouts[c.random.IntN(len(c.layouts))]
		}))
	}
	return c
}

// tenants come to idle instances of GPUs without a taint, and go from anywhere.
func (c *course) tenants(coming bool) {
	for i := range c.gpus {
		g := &c.gpus[i]
		for j := range g.Instances {
			instance := &g.Instances[j]
			switch {
			case instance.InUse && c.random.IntN(8) == 0:
				instance.InUse = false
				g.Holders = slices.DeleteFunc(g.Holders, func(h rollout.Holder) bool { return h.Placement == instance.Placement })
			case !instance.InUse && coming && !g.Settled && g.Offered && c.random.IntN(4) == 0:
				instance.InUse = true
				g.Holders = append(g.Holders, rollout.Holder{Placement: instance.Placement, Name: "t/p", Evictable: true})
			}
		}
	}
}

// agents make what is decided, now and then.
func (c *course) agents() {
	for i := range c.gpus {
		g := &c.gpus[i]
		if c.random.IntN(2) == 0 {
			continue
		}
		todo := layout.Diff(g.Instances, g.Decided)
		if len(todo.MustDrain) > 0 {
			c.t.Fatalf("%s is decided to lose %v, which is in use", g.UUID, todo.MustDrain)
		}
		g.Instances = slices.DeleteFunc(g.Instances, func(x layout.Instance) bool { return slices.Contains(todo.Destroy, x.Placement) })
		for _, p := range todo.Create {
			g.Instances = append(g.Instances, layout.Instance{Placement: p})
		}
		g.Offered = len(g.Decided) > 0
		g.Settled = !g.Draining.IsZero()
	}
}

// manager carries the verdicts out.
func (c *course) manager() rollout.Result {
	result := rollout.Decide(c.gpus, c.policy, c.now)
	for i, v := range result.Verdicts {
		g := &c.gpus[i]
		switch v.Step {
		case rollout.StepBegin:
			g.Draining = c.now
		case rollout.StepApply:
			g.Decided = v.Target
		case rollout.StepRelease:
			g.Draining, g.Settled = time.Time{}, false
		case rollout.StepEvict:
			for _, h := range v.Evict {
				c.evict(g, h.Placement)
			}
		default:
		}
	}
	tainted := 0
	for _, g := range c.gpus {
		if !g.Draining.IsZero() {
			tainted++
		}
	}
	if tainted > c.policy.MaxUnavailable {
		c.t.Fatalf("%d GPUs are tainted, at most %d may be", tainted, c.policy.MaxUnavailable)
	}
	return result
}

func (c *course) evict(g *rollout.GPU, p gpu.Placement) {
	if !c.policy.Evict || c.now.Sub(g.Draining) < c.policy.Grace {
		c.t.Fatalf("%s: %v is evicted after %s", g.UUID, p, c.now.Sub(g.Draining))
	}
	for i := range g.Instances {
		if g.Instances[i].Placement == p {
			g.Instances[i].InUse = false
		}
	}
	g.Holders = slices.DeleteFunc(g.Holders, func(h rollout.Holder) bool { return h.Placement == p })
}

// TestEveryRolloutEnds lets layouts change while tenants come and go: nothing in use is destroyed, no more GPUs are
// tainted than may be, nobody is evicted early, and once the layouts stay every GPU gets its own.
func TestEveryRolloutEnds(t *testing.T) {
	for seed := range uint64(60) {
		c := newCourse(t, seed)
		for range 200 {
			c.now = c.now.Add(time.Minute)
			if c.random.IntN(25) == 0 {
				for i := range c.gpus {
					c.gpus[i].Wanted = c.layouts[c.random.IntN(len(c.layouts))]
				}
			}
			c.tenants(true)
			c.agents()
			c.manager()
		}
		done := 0
		for step := 0; done < len(c.gpus); step++ {
			if step == 2000 {
				t.Fatalf("seed %d: %d of %d GPUs are done: %s", seed, done, len(c.gpus), c.manager().Message)
			}
			c.now = c.now.Add(time.Minute)
			c.tenants(true)
			c.agents()
			done = c.manager().Done
		}
	}
}
