// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
)

// Replaces says whether new decisions drop a decision in force, change its form or take instances out of it: what may only
// happen to what nobody holds.
func Replaces(inForce, decided []v1alpha1.GPUDecision) bool {
	next := byUUID(decided)
	for _, d := range inForce {
		n, kept := next[d.UUID]
		if !kept || !SameForm(d, n) || !sameInstances(d, n) {
			return true
		}
	}
	return false
}

func sameInstances(a, b v1alpha1.GPUDecision) bool {
	return slices.Equal(Placements(a.Instances), Placements(b.Instances))
}

// Placements are a decision's instances as placements, in their order.
func Placements(instances []v1alpha1.MIGPlacement) []gpu.Placement {
	placements := make([]gpu.Placement, 0, len(instances))
	for _, i := range instances {
		placements = append(placements, gpu.Placement{Profile: i.Profile, Start: int(ptr.Deref(i.Start, 0))})
	}
	return placements
}

// instancesOf are placements as a decision's instances.
func instancesOf(placements []gpu.Placement) []v1alpha1.MIGPlacement {
	var instances []v1alpha1.MIGPlacement
	for _, p := range placements {
		instances = append(instances, v1alpha1.MIGPlacement{Start: ptr.To(int32(p.Start)), Profile: p.Profile})
	}
	return instances
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
	text := fmt.Sprintf("%s (%s)", d.Pool, Describe(d))
	if StrategyOf(d) == v1alpha1.MIGStatic {
		text += " with " + layout.Describe(layout.Of(Placements(d.Instances)))
	}
	if d.Taint != "" {
		text += fmt.Sprintf(" tainted %s", d.Taint)
	}
	return text
}

// Describe is the form of a decision in a few words.
func Describe(d v1alpha1.GPUDecision) string {
	if strategy := StrategyOf(d); strategy == v1alpha1.MIGStatic {
		return fmt.Sprintf("%s %s, %s", d.Partitioning, strategy, d.Sharing)
	}
	return fmt.Sprintf("%s, %s", d.Partitioning, d.Sharing)
}
