// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Replaces says whether new decisions drop a decision in force or change its form: what may only happen to a GPU that
// nobody holds.
func Replaces(inForce, decided []v1alpha1.GPUDecision) bool {
	next := byUUID(decided)
	for _, d := range inForce {
		n, kept := next[d.UUID]
		if !kept || !sameForm(d, n) {
			return true
		}
	}
	return false
}

// Change is what the same change of decisions of one or more GPUs is, for people.
type Change struct {
	// UUIDs are the GPUs'.
	UUIDs []string
	// From and To are the decisions in short; "none" where there is none.
	From, To string
}

// Changes are the decisions that differ in pool, form or taint, ordered as they are given.
func Changes(inForce, decided []v1alpha1.GPUDecision) []Change {
	before, after := byUUID(inForce), byUUID(decided)
	var changes []Change
	add := func(uuid string) {
		c := Change{UUIDs: []string{uuid}, From: short(before, uuid), To: short(after, uuid)}
		if c.From == c.To {
			return
		}
		i := slices.IndexFunc(changes, func(other Change) bool { return other.From == c.From && other.To == c.To })
		if i < 0 {
			changes = append(changes, c)
			return
		}
		changes[i].UUIDs = append(changes[i].UUIDs, uuid)
	}
	for _, d := range inForce {
		add(d.UUID)
	}
	for _, d := range decided {
		if _, found := before[d.UUID]; !found {
			add(d.UUID)
		}
	}
	return changes
}

func byUUID(decisions []v1alpha1.GPUDecision) map[string]v1alpha1.GPUDecision {
	m := make(map[string]v1alpha1.GPUDecision, len(decisions))
	for _, d := range decisions {
		m[d.UUID] = d
	}
	return m
}

func short(decisions map[string]v1alpha1.GPUDecision, uuid string) string {
	d, found := decisions[uuid]
	if !found {
		return "none"
	}
	text := fmt.Sprintf("%s (%s, %s)", d.Pool, d.Partitioning, d.Sharing)
	if d.Taint != "" {
		text += fmt.Sprintf(" tainted %s", d.Taint)
	}
	return text
}
