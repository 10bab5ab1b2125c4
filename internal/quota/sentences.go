// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"slices"
)

func sameScope(a, b []string) bool { return slices.Equal(a, b) }

func aboveHard(q *Quota, name string, asked, used, hard int64) *Refusal {
	r := &Refusal{
		Reason: RefusedHard, Never: asked > hard, Namespace: q.Namespace, Quota: q.Name,
		Resource: name, Asked: asked, Used: used, Allowed: hard,
	}
	if r.Never {
		r.Sentence = fmt.Sprintf("%s: %s asked, but %s allows %s in all: ask for less", name, Format(name, asked), q, Format(name, hard))
		return r
	}
	r.Sentence = fmt.Sprintf("%s: %s asked, %s used, and %s allows %s: %s left", name,
		Format(name, asked), Format(name, used), q, Format(name, hard), Format(name, max(0, hard-used)))
	return r
}

// shareOf is one amount of a namespace in a group.
type shareOf struct {
	name                                   string
	asked, used, guarantee, capacity, left int64
}

func nothingToBorrow(q *Quota, s shareOf) *Refusal {
	r := &Refusal{
		Reason: RefusedCohort, Never: s.asked > s.capacity, Namespace: q.Namespace, Quota: q.Name,
		Resource: s.name, Asked: s.asked, Used: s.used, Allowed: add(s.used, s.left),
	}
	if r.Never {
		r.Allowed = s.capacity
		r.Sentence = fmt.Sprintf("%s: %s asked, but cohort %s of %s has %s in all: ask for less", s.name,
			Format(s.name, s.asked), q.Cohort, q, Format(s.name, s.capacity))
		return r
	}
	r.Sentence = fmt.Sprintf("%s: %s asked, %s used with %s guaranteed by %s, and cohort %s has %s left to lend", s.name,
		Format(s.name, s.asked), Format(s.name, s.used), Format(s.name, s.guarantee), q, q.Cohort, Format(s.name, s.left))
	return r
}

func waitsForLent(q *Quota, s shareOf) *Refusal {
	return &Refusal{
		Reason: RefusedLent, Namespace: q.Namespace, Quota: q.Name,
		Resource: s.name, Asked: s.asked, Used: s.used, Allowed: s.guarantee,
		Sentence: fmt.Sprintf("%s: %s asked, %s used with %s guaranteed by %s: what cohort %s lent to others is being taken back", s.name,
			Format(s.name, s.asked), Format(s.name, s.used), Format(s.name, s.guarantee), q, q.Cohort),
	}
}

func notCounted(namespace string) *Refusal {
	return &Refusal{
		Reason: RefusedUncounted, Namespace: namespace,
		Sentence: fmt.Sprintf("what namespace %s holds of its GPUQuota is being counted: this is tried again in a moment", namespace),
	}
}

func notDescribed(namespace string, unknown int32) *Refusal {
	return &Refusal{
		Reason: RefusedUncounted, Namespace: namespace,
		Sentence: fmt.Sprintf("namespace %s holds %d devices that no node describes at the moment, so what is left of its GPUQuota is not known",
			namespace, unknown),
	}
}

func busy(namespace string) *Refusal {
	return &Refusal{
		Reason: RefusedBusy, Namespace: namespace,
		Sentence: "too many allocations are under way at once: this is tried again in a moment",
	}
}
