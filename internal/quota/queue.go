// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Pod is a pod that waits, or that was let go and has no devices yet.
type Pod struct {
	// UID, Namespace and Name are the pod's.
	UID, Namespace, Name string
	// Priority is the pod's.
	Priority int32
	// Since is when it was made.
	Since time.Time
	// Cost is the least that it will cost.
	Cost Cost
	// Stuck is true where it was let go long enough ago to have devices and has none. It keeps its place in its own
	// namespace, but nobody of another waits for it.
	Stuck bool
}

// Order sorts pods as they are served: the highest priority first, then the oldest, then by name.
func Order(pods []Pod) []Pod {
	return slices.SortedStableFunc(slices.Values(pods), byTurn)
}

func byTurn(a, b Pod) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Turn is what becomes of one waiting pod.
type Turn struct {
	// Pod is the pod.
	Pod Pod
	// Release is true where its gate is to be lifted now.
	Release bool
	// Position is its place among the waiting pods of its namespace, from 1; 0 where it is released.
	Position int
	// Refusal says what it waits for; nil where it waits for its turn only, or is released. Where it could never fit
	// the pod keeps nobody waiting.
	Refusal *Refusal
}

// Queue decides which of the waiting pods of a domain are let go now, in their order. Those that were let go before and
// hold nothing yet, and have no reservation, count as if they did.
//
// Nobody overtakes: a pod that finds no room in a quota keeps the pods behind it waiting that count in any of the quotas it counts in;
// one that finds nothing to borrow keeps waiting those behind it that would borrow in the same cohort, but not pods
// within their namespace's guarantee. Those wait for what others hold, but not for what others were let go for: guarantees
// fit together, and what is allocated is judged once more.
func (d *Domain) Queue(l *Ledger, underWay, waiting []Pod, now time.Time) []Turn {
	u := l.use("")
	line := line{domain: d, groups: d.groups(), blocked: map[string]bool{}, stuck: map[string][]Pod{}}
	for _, pod := range underWay {
		if pod.Stuck {
			line.stuck[pod.Namespace] = append(line.stuck[pod.Namespace], pod)
			continue
		}
		u.add(pod.Namespace, pod.Cost)
	}
	positions := map[string]int{}
	turns := make([]Turn, 0, len(waiting))
	for _, pod := range Order(waiting) {
		turn := Turn{Pod: pod}
		turn.Release, turn.Refusal = line.next(l, line.useFor(u, pod.Namespace), pod, now)
		if turn.Release {
			u.add(pod.Namespace, pod.Cost)
		} else {
			positions[pod.Namespace]++
			turn.Position = positions[pod.Namespace]
		}
		turns = append(turns, turn)
	}
	return turns
}

// line is who keeps whom waiting.
type line struct {
	domain  *Domain
	groups  []group
	blocked map[string]bool
	stuck   map[string][]Pod
}

// useFor is what is held as far as pods of a namespace wait for it.
func (q *line) useFor(u use, namespace string) use {
	if len(q.stuck[namespace]) == 0 {
		return u
	}
	with := u.clone()
	for _, pod := range q.stuck[namespace] {
		with.add(namespace, pod.Cost)
	}
	return with
}

func (q *line) next(l *Ledger, u use, pod Pod, now time.Time) (bool, *Refusal) {
	if never := q.domain.never(q.groups, pod.Namespace, pod.Cost); never != nil {
		return false, never
	}
	if entry := l.Namespaces[pod.Namespace]; entry.Version == "" || entry.MovedTo != "" {
		return false, notCounted(pod.Namespace)
	}
	own, borrows := q.places(u, pod)
	if q.anyBlocked(own) {
		q.block(own)
		return false, nil
	}
	if q.anyBlocked(borrows) {
		return false, nil
	}
	if len(borrows) == 0 {
		u = u.onlyMoreOf(pod.Namespace)
	}
	refusal := q.domain.fitsIn(q.groups, l, u, asking{namespace: pod.Namespace, cost: pod.Cost, now: now, made: pod.Since})
	switch {
	case refusal == nil:
		return true, nil
	case refusal.Reason == RefusedCohort:
		q.block(borrows)
	default:
		q.block(own)
	}
	return false, refusal
}

// places are where a pod stands in line: in each quota that it counts in, and in each group from which it would borrow.
func (q *line) places(u use, pod Pod) (own, borrows []string) {
	quotas := q.domain.Of(pod.Namespace)
	for i := range quotas {
		if !pod.Cost.In(quotas[i].Pools).Zero() {
			own = append(own, quotas[i].String())
		}
	}
	for _, g := range q.groups {
		asked := pod.Cost.In(g.pools)
		if _, member := g.members[pod.Namespace]; !member || asked.Zero() {
			continue
		}
		if !g.covers(pod.Namespace, u.of(pod.Namespace, g.pools).Plus(asked), g.capacity()) {
			borrows = append(borrows, "cohort: "+strings.Join(g.pools, ","))
		}
	}
	return own, borrows
}

func (q *line) anyBlocked(places []string) bool {
	return slices.ContainsFunc(places, func(place string) bool { return q.blocked[place] })
}

func (q *line) block(places []string) {
	for _, place := range places {
		q.blocked[place] = true
	}
}

// Step is a position as it is shown: exact up to 10, then rounded up to tens, so that a long queue is not rewritten
// for every pod that leaves it.
func Step(position int) int {
	if position <= 10 {
		return position
	}
	return (position + 9) / 10 * 10
}
