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
	// disturbs and destroys are how many instances in use and how many in all a change that has not begun takes away.
	disturbs, destroys int
	// takesNothing is true where a change needs a taint although nothing is taken away.
	takesNothing bool
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
	case g.Reform:
		j.reform(&c)
	case g.Whole:
		c.settle()
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

// settle waits for the agent to offer a GPU without a layout in its new form. One that is not in change is none of a
// rollout's business.
func (c *change) settle() {
	switch {
	case c.gpu.Draining.IsZero():
		c.verdict.Step = StepDone
	case c.gpu.Formed:
		c.say(StepRelease, "%s is %s", name(c.gpu), c.gpu.Form)
	case c.gpu.Failure != "":
		c.say(StepApplying, "%s could not become %s: %s", name(c.gpu), c.gpu.Form, c.gpu.Failure)
	default:
		c.say(StepApplying, "%s is becoming %s", name(c.gpu), c.gpu.Form)
	}
}

// reform goes on with the change from the form in force to the wanted one.
func (j *judge) reform(c *change) {
	var target []gpu.Placement
	if !c.gpu.Whole {
		plan, err := layout.Plan(c.gpu.Board, c.gpu.Instances, c.gpu.Wanted)
		if err != nil {
			c.refuse(j.refusal(c.gpu, err))
			return
		}
		target = plan.Target()
	}
	begun := !c.gpu.Draining.IsZero()
	switch {
	case begun && c.gpu.Held:
		j.drain(c, c.gpu.Holders, heldByAll(c.gpu.Holders))
	case begun && !c.gpu.Settled:
		c.say(StepSettle, "%s is empty, and waits for its node's agent to take it from the scheduler", name(c.gpu))
	case !begun:
		c.verdict.Step = StepWait
		c.takesNothing = !c.gpu.Offered && !c.gpu.Held
		c.disturbs, c.destroys = len(c.gpu.Holders), max(1, len(c.gpu.Instances))
	case j.now.Before(c.gpu.NotBefore):
		c.ready()
	default:
		c.apply(target)
	}
}

// aim is what a GPU is to do, as it follows "to".
func (c *change) aim() string {
	switch {
	case !c.gpu.Reform:
		return "be divided into " + layout.Describe(c.gpu.Wanted)
	case c.gpu.Whole:
		return "become " + c.gpu.Form
	default:
		return "become " + c.gpu.Form + " with " + layout.Describe(c.gpu.Wanted)
	}
}

// ready waits for the time of the change.
func (c *change) ready() {
	c.verdict.Again = c.gpu.NotBefore
	c.say(StepReady, "%s is ready to %s, and waits for %s", name(c.gpu), c.aim(), c.gpu.NotBefore.Format(time.RFC3339))
}

// apply decides for the wanted form and its placements.
func (c *change) apply(target []gpu.Placement) {
	c.verdict.Target = target
	c.say(StepApply, "%s is to %s", name(c.gpu), c.aim())
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
		holders := c.holders(plan.MustDrain)
		j.drain(c, holders, heldBy(holders, plan.MustDrain))
	case begun && len(plan.Destroy) > 0 && !c.gpu.Settled:
		c.say(StepSettle, "%s is empty where it has to be, and waits for its node's agent to take it from the scheduler", name(c.gpu))
	case !begun && !takesNothing:
		c.verdict.Step = StepWait
		c.disturbs, c.destroys = len(plan.MustDrain), len(plan.Destroy)
	case j.now.Before(c.gpu.NotBefore):
		c.ready()
	default:
		c.apply(plan.Target())
	}
}

// drain waits for those who hold what has to go, and evicts them when their time is over.
func (j *judge) drain(c *change, holders []Holder, held string) {
	c.say(StepDrain, "%s waits: %s", name(c.gpu), held)
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
		return cmp.Or(cmp.Compare(a.disturbs, b.disturbs), cmp.Compare(a.destroys, b.destroys),
			cmp.Compare(a.gpu.Node, b.gpu.Node), cmp.Compare(a.gpu.Minor, b.gpu.Minor), cmp.Compare(a.gpu.UUID, b.gpu.UUID))
	})
	for _, c := range waiting {
		// What is out of use already loses nothing more.
		free := c.outOfUse || c.takesNothing
		if free || outOfUse < most {
			if !free {
				outOfUse++
			}
			c.say(StepBegin, "%s takes no new tenants: it is to %s", name(c.gpu), c.aim())
			continue
		}
		c.say(StepWait, "%s waits to %s: maxUnavailable is %d", name(c.gpu), c.aim(), most)
	}
}
