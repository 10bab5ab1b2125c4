// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
)

// change is a GPU with its verdict and what the choice among GPUs needs.
type change struct {
	gpu     GPU
	verdict Verdict
	// outOfUse is true where the GPU counts against the bound already.
	outOfUse bool
	// needs is what a change that has not begun takes away.
	needs layout.Change
}

// judge judges GPUs one by one.
type judge struct {
	policy Policy
	now    time.Time
	// refusals are the sentences about layouts that a board cannot hold. They take a search, and whole pools share them.
	refusals map[string]string
}

// judge says what is to be done with a GPU, as if it were the only one. A change that would have to begin is StepWait.
func (j *judge) judge(g GPU) change {
	c := change{gpu: g, verdict: Verdict{Node: g.Node, UUID: g.UUID}}
	c.outOfUse = g.Away == "" && (!g.Draining.IsZero() || g.Failure != "")
	switch {
	case g.Away != "":
		c.say(StepAway, "%s %s", name(g), g.Away)
	case g.Problem != "":
		c.refuse(g.Problem)
	case layout.Same(layout.Of(g.Decided), g.Wanted):
		j.finish(&c)
	default:
		j.plan(&c)
	}
	return c
}

// refusal is the sentence of an error about a GPU's layout.
func (j *judge) refusal(g GPU, err error) string {
	key := fmt.Sprint(g.Board, g.Wanted)
	sentence, known := j.refusals[key]
	if !known {
		sentence = err.Error()
		j.refusals[key] = sentence
	}
	return sentence
}

func (c *change) say(step Step, format string, args ...any) {
	c.verdict.Step = step
	c.verdict.Message = fmt.Sprintf(format, args...)
}

// refuse leaves the GPU as it is, the taint not included: it takes tenants again.
func (c *change) refuse(problem string) {
	step := StepRefused
	if !c.gpu.Draining.IsZero() {
		step = StepRelease
	}
	c.say(step, "%s stays as it is: %s", name(c.gpu), problem)
}

// finish waits for the agent to make what is decided.
func (j *judge) finish(c *change) {
	todo := layout.Diff(c.gpu.Instances, c.gpu.Decided)
	if todo.Nothing() {
		c.verdict.Step = StepDone
		if !c.gpu.Draining.IsZero() {
			c.say(StepRelease, "%s is divided into %s", name(c.gpu), layout.Describe(c.gpu.Wanted))
		}
		return
	}
	// What was decided when the board could hold it must not be waited for when it cannot any more.
	err := layout.Check(c.gpu.Board, c.gpu.Wanted)
	switch {
	case err != nil:
		c.refuse(j.refusal(c.gpu, err))
	case c.gpu.Failure != "":
		c.say(StepApplying, "%s could not be divided: %s", name(c.gpu), c.gpu.Failure)
	case len(todo.MustDrain) > 0:
		c.say(StepApplying, "%s is not divided as decided: %s", name(c.gpu), heldBy(c.holders(todo.MustDrain), todo.MustDrain))
	default:
		c.say(StepApplying, "%s is being divided into %s", name(c.gpu), layout.Describe(c.gpu.Wanted))
	}
}

// plan goes on with the change from the decision in force to the wanted layout.
func (j *judge) plan(c *change) {
	plan, err := layout.Plan(c.gpu.Board, c.gpu.Instances, c.gpu.Wanted)
	if err != nil {
		c.refuse(j.refusal(c.gpu, err))
		return
	}
	begun := !c.gpu.Draining.IsZero()
	takesNothing := len(plan.Destroy) == 0 || !c.gpu.Offered && len(plan.MustDrain) == 0
	switch {
	case begun && len(plan.MustDrain) > 0:
		j.drain(c, plan.MustDrain)
	case begun && len(plan.Destroy) > 0 && !c.gpu.Settled:
		c.say(StepSettle, "%s is empty where it has to be, and waits for allocations that may be on their way", name(c.gpu))
	case !begun && !takesNothing:
		c.verdict.Step = StepWait
		c.needs = plan
	case j.now.Before(c.gpu.NotBefore):
		c.verdict.Again = c.gpu.NotBefore
		c.say(StepReady, "%s is ready to be divided into %s, and waits for %s",
			name(c.gpu), layout.Describe(c.gpu.Wanted), c.gpu.NotBefore.Format(time.RFC3339))
	default:
		c.verdict.Target = plan.Target()
		c.say(StepApply, "%s is to be divided into %s", name(c.gpu), layout.Describe(c.gpu.Wanted))
	}
}

// drain waits for those who hold what has to go, and evicts them when their time is over.
func (j *judge) drain(c *change, busy []gpu.Placement) {
	holders := c.holders(busy)
	c.say(StepDrain, "%s waits: %s", name(c.gpu), heldBy(holders, busy))
	if !j.policy.Evict {
		return
	}
	if end := c.gpu.Draining.Add(j.policy.Grace); j.now.Before(end) {
		c.verdict.Again = end
		return
	}
	for _, h := range holders {
		if h.Evictable {
			c.verdict.Step = StepEvict
			c.verdict.Evict = append(c.verdict.Evict, h)
		}
	}
}

// holders are who has the given instances, by place.
func (c *change) holders(busy []gpu.Placement) []Holder {
	var holders []Holder
	for _, h := range c.gpu.Holders {
		if slices.Contains(busy, h.Placement) {
			holders = append(holders, h)
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Name, b.Name))
	})
	return holders
}

// begin lets as many changes begin as the bound leaves room for, those that disturb the fewest first.
func begin(changes []change, most, outOfUse int) {
	var waiting []*change
	for i := range changes {
		if changes[i].verdict.Step == StepWait {
			waiting = append(waiting, &changes[i])
		}
	}
	slices.SortStableFunc(waiting, func(a, b *change) int {
		return cmp.Or(cmp.Compare(len(a.needs.MustDrain), len(b.needs.MustDrain)),
			cmp.Compare(len(a.needs.Destroy), len(b.needs.Destroy)),
			cmp.Compare(a.gpu.Node, b.gpu.Node), cmp.Compare(a.gpu.Minor, b.gpu.Minor), cmp.Compare(a.gpu.UUID, b.gpu.UUID))
	})
	for i, c := range waiting {
		if outOfUse+i < most {
			c.say(StepBegin, "%s takes no new tenants: it is to be divided into %s", name(c.gpu), layout.Describe(c.gpu.Wanted))
			continue
		}
		c.say(StepWait, "%s waits to be divided into %s: maxUnavailable is %d", name(c.gpu), layout.Describe(c.gpu.Wanted), most)
	}
}
