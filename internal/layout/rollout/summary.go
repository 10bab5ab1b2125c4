// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// named is how many holders or GPUs a sentence names before it counts the rest.
const named = 3

func name(g GPU) string { return fmt.Sprintf("GPU %d of node %s", g.Minor, g.Node) }

// heldBy says who has which instance. Those whose holder nobody knows are named all the same.
func heldBy(holders []Holder, busy []gpu.Placement) string {
	var clauses []string
	for _, p := range busy {
		var names []string
		for _, h := range holders {
			if h.Placement == p {
				names = append(names, h.Name)
			}
		}
		who := "somebody unknown"
		if len(names) > 0 {
			who = some(names, " and ")
		}
		clauses = append(clauses, fmt.Sprintf("%s at %d is held by %s", p.Profile, p.Start, who))
	}
	return some(clauses, ", ")
}

// heldByAll says who has a GPU.
func heldByAll(holders []Holder) string {
	if len(holders) == 0 {
		return "it is held by somebody unknown"
	}
	var names []string
	for _, h := range holders {
		if !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	return "it is held by " + some(names, " and ")
}

// some joins the first few of a list and counts the others.
func some(list []string, separator string) string {
	if len(list) <= named {
		return strings.Join(list, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:named], ", "), len(list)-named)
}

// summarize counts the verdicts and says in one line how far the pool is, and what stands in the way.
func summarize(changes []change) Result {
	var r Result
	var changing, refused []string
	for _, c := range changes {
		r.Verdicts = append(r.Verdicts, c.verdict)
		switch c.verdict.Step {
		case StepDone:
			r.Done++
		case StepAway:
			r.Away++
		case StepRefused:
			r.Refused++
			refused = append(refused, c.verdict.Message)
		case StepWait:
			r.Waiting++
		case StepBegin, StepDrain, StepEvict, StepSettle, StepReady, StepApply, StepApplying, StepRelease:
			r.Changing++
			changing = append(changing, c.verdict.Message)
		}
	}
	if r.Done == len(changes) {
		return r
	}
	counts := []string{fmt.Sprintf("%d of %d GPUs are as wanted", r.Done, len(changes))}
	for _, part := range []struct {
		n    int
		what string
	}{{r.Changing, "in change"}, {r.Waiting, "waiting"}, {r.Refused, "refused"}, {r.Away, "away"}} {
		if part.n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	r.Message = strings.Join(counts, ", ")
	for _, sentences := range [][]string{changing, refused} {
		if len(sentences) > 0 {
			r.Message += "; " + some(slices.Compact(sentences), "; ")
		}
	}
	return r
}
