// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"fmt"

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

// Change is a decision that became another, for people.
type Change struct {
	// UUID is the GPU's.
	UUID string
	// From and To are the decisions in short; "none" where there is none.
	From, To string
}

// Changes are the decisions that differ in pool, form or taint, ordered as they are given.
func Changes(inForce, decided []v1alpha1.GPUDecision) []Change {
	before, after := byUUID(inForce), byUUID(decided)
	var changes []Change
	add := func(uuid string) {
		if c := (Change{UUID: uuid, From: short(before, uuid), To: short(after, uuid)}); c.From != c.To {
			changes = append(changes, c)
		}
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
