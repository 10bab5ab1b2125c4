// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Holder is what ends together: a pod with its claims, or the pods that share a claim.
type Holder struct {
	// Namespace is the pods'.
	Namespace string
	// Pods are their names.
	Pods []string
	// Priority is the highest of theirs.
	Priority int32
	// Since is when their claims were allocated.
	Since time.Time
	// Charges is what their claims hold.
	Charges Charges
	// Ending is true once they were asked to end.
	Ending bool
}

func (h *Holder) key() string { return h.Namespace + "/" + strings.Join(h.Pods, ",") }

// Plan is how a domain meets what is waited for within guarantees.
type Plan struct {
	// Victims are the holders to evict now, each with the pods that wait for it.
	Victims []Victim
	// Wanted is what each namespace waits for within its guarantee, to be written to the ledger (Want) before anybody is
	// evicted. A namespace that is not in it wants nothing.
	Wanted map[string]*Wanted
	// Waiting are the pods within their namespace's guarantee, in their order.
	Waiting []Pod
}

// Victim is a holder to evict.
type Victim struct {
	Holder

	// For is the pod that waits.
	For Pod
}

// Reclaim decides who gives back what was borrowed. Of the pods of a namespace those are covered that fit in its
// guarantee, the highest priority first, then the oldest; what nobody can evict comes before them. The others
// are borrowed. Evicted are borrowed pods of namespaces above their guarantee only, the newest of the lowest priority
// first, and only for pods that fit in their own namespace's guarantee: a pod that comes back after its eviction is
// not such a pod as long as it would borrow again, so nobody is evicted for it.
//
// A pod that no eviction can help gets none, a victim without which there is room all the same is spared, and holders
// that end already count as gone. grace is how long evicted pods have.
func (d *Domain) Reclaim(l *Ledger, holders []Holder, waiting []Pod, now time.Time, grace time.Duration) Plan {
	u := l.use("")
	remaining := make([]Holder, 0, len(holders))
	ending := false
	for i := range holders {
		if holders[i].Ending {
			u.remove(holders[i].Namespace, holders[i].Charges)
			ending = true
			continue
		}
		remaining = append(remaining, holders[i])
	}
	r := reclaim{domain: d, u: u, held: remaining, evicted: map[string]bool{}}
	for _, g := range d.groups() {
		r.shares = append(r.shares, groupShare{group: g, shared: g.capacity(), borrowed: borrowed(g, u, remaining)})
	}
	plan := Plan{Wanted: map[string]*Wanted{}}
	for _, pod := range Order(waiting) {
		if !r.within(pod) {
			continue
		}
		plan.Waiting = append(plan.Waiting, pod)
		plan.want(r, pod)
		for _, victim := range r.makeRoom(pod) {
			plan.Victims = append(plan.Victims, Victim{Holder: victim, For: pod})
		}
		r.u.add(pod.Namespace, pod.Cost)
	}
	plan.setTimes(l, now, grace, ending || len(plan.Victims) > 0)
	return plan
}

// reclaim is the state while a plan is made.
type reclaim struct {
	domain  *Domain
	u       use
	held    []Holder
	shares  []groupShare
	evicted map[string]bool
}

// groupShare is a group, and who may be evicted in it.
type groupShare struct {
	group
	shared   Amounts
	borrowed []int // indexes of holders, in the order of eviction
}

// within says whether a pod waits for what its namespace lent: it fits in hard and in the guarantee of each group it
// counts in.
func (r *reclaim) within(pod Pod) bool {
	quotas := r.domain.Of(pod.Namespace)
	for i := range quotas {
		if quotas[i].holds(r.u, asking{namespace: pod.Namespace, cost: pod.Cost}) != nil {
			return false
		}
	}
	counted := false
	for i := range r.shares {
		s := &r.shares[i]
		asked := s.asks(pod)
		if asked == nil {
			continue
		}
		counted = true
		if !s.covers(pod.Namespace, r.u.of(pod.Namespace, s.pools).Plus(asked), s.shared) {
			return false
		}
	}
	return counted
}

// asks is what a pod asks of a group; nil where that is nothing that the group shares.
func (s *groupShare) asks(pod Pod) Amounts {
	if _, member := s.members[pod.Namespace]; !member {
		return nil
	}
	asked := pod.Cost.In(s.pools)
	for name := range s.shared {
		if asked[name] > 0 {
			return asked
		}
	}
	return nil
}

// makeRoom chooses whom to evict for a pod: in all groups enough, or nobody.
func (r *reclaim) makeRoom(pod Pod) []Holder {
	var chosen []int
	for i := range r.shares {
		s := &r.shares[i]
		asked := s.asks(pod)
		if asked == nil {
			continue
		}
		more, enough := r.choose(s, s.short(r.without(chosen), asked), pod.Namespace, chosen)
		if !enough {
			return nil
		}
		chosen = append(chosen, more...)
	}
	victims := make([]Holder, 0, len(chosen))
	for _, index := range chosen {
		h := r.held[index]
		r.evicted[h.key()] = true
		r.u.remove(h.Namespace, h.Charges)
		victims = append(victims, h)
	}
	return victims
}

// without is what is held once the chosen are gone.
func (r *reclaim) without(chosen []int) use {
	after := r.u.clone()
	for _, index := range chosen {
		after.remove(r.held[index].Namespace, r.held[index].Charges)
	}
	return after
}

// short is what a group lacks for what is asked.
func (s *groupShare) short(u use, asked Amounts) Amounts {
	lacks := Amounts{}
	together := s.used(u)
	for name, capacity := range s.shared {
		if lack := add(together[name], asked[name]) - capacity; asked[name] > 0 && lack > 0 {
			lacks[name] = lack
		}
	}
	return lacks
}

// choose takes borrowed holders in their order until nothing is lacking, then spares those that turn out not to be needed.
func (r *reclaim) choose(s *groupShare, lacks Amounts, beneficiary string, before []int) (chosen []int, enough bool) {
	if lacks.Zero() {
		return nil, true
	}
	left := lacks
	for _, index := range s.borrowed {
		h := &r.held[index]
		if h.Namespace == beneficiary || r.evicted[h.key()] || slices.Contains(before, index) {
			continue
		}
		if !s.gives(r.without(slices.Concat(before, chosen)), h, left) {
			continue
		}
		chosen = append(chosen, index)
		if left = reduce(left, h.Charges.In(s.pools)); left.Zero() {
			return r.spare(s, lacks, chosen), true
		}
	}
	return nil, false
}

// gives says whether a holder has something of what is lacking that its namespace holds above its guarantee.
func (s *groupShare) gives(u use, h *Holder, lacks Amounts) bool {
	has := h.Charges.In(s.pools)
	held := u.of(h.Namespace, s.pools)
	for name, lack := range lacks {
		if lack > 0 && has[name] > 0 && held[name] > s.members[h.Namespace][name] {
			return true
		}
	}
	return false
}

// spare drops those without whom enough is left, beginning with the one chosen last, which was the hardest to give up.
func (r *reclaim) spare(s *groupShare, lacks Amounts, chosen []int) []int {
	for _, index := range slices.Backward(slices.Clone(chosen)) {
		others := slices.DeleteFunc(slices.Clone(chosen), func(i int) bool { return i == index })
		left := lacks
		for _, i := range others {
			left = reduce(left, r.held[i].Charges.In(s.pools))
		}
		if left.Zero() {
			chosen = others
		}
	}
	return chosen
}

func reduce(lacks, by Amounts) Amounts {
	left := Amounts{}
	for name, value := range lacks {
		left[name] = max(0, value-by[name])
	}
	return left
}

// borrowed are the holders of a group that their namespace's guarantee does not cover, in the order of eviction.
func borrowed(g group, u use, holders []Holder) []int {
	shared := g.capacity()
	attributed := map[string]Amounts{}
	var members []int
	for i := range holders {
		if _, member := g.members[holders[i].Namespace]; member {
			members = append(members, i)
			attributed[holders[i].Namespace] = attributed[holders[i].Namespace].Plus(holders[i].Charges.In(g.pools))
		}
	}
	slices.SortFunc(members, func(a, b int) int { return byWorth(&holders[a], &holders[b]) })
	covered := map[string]Amounts{}
	for name := range g.members {
		covered[name] = reduce(u.of(name, g.pools), attributed[name])
	}
	var found []int
	for _, i := range members {
		h := &holders[i]
		if with := covered[h.Namespace].Plus(h.Charges.In(g.pools)); g.covers(h.Namespace, with, shared) {
			covered[h.Namespace] = with
			continue
		}
		found = append(found, i)
	}
	slices.Reverse(found)
	return found
}

// byWorth orders holders by how hard they are to give up: the highest priority first, then the oldest.
func byWorth(a, b *Holder) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), strings.Compare(a.key(), b.key()))
}

// want adds a pod to what its namespace waits for. A pod that counts in several groups is kept room for in the pools
// of each.
func (p *Plan) want(r reclaim, pod Pod) {
	wanted := p.Wanted[pod.Namespace]
	if wanted == nil {
		wanted = &Wanted{Since: pod.Since, Charges: Charges{}}
		p.Wanted[pod.Namespace] = wanted
	}
	if pod.Since.Before(wanted.Since) {
		wanted.Since = pod.Since
	}
	charges := Charges{}
	for i := range r.shares {
		if asked := r.shares[i].asks(pod); asked != nil {
			charges = charges.Largest(Charges{r.shares[i].pools[0]: asked})
		}
	}
	wanted.Charges.AddAll(charges)
}

// setTimes says until when each has precedence over others within their guarantees: as long as room is on its way.
func (p *Plan) setTimes(l *Ledger, now time.Time, grace time.Duration, onItsWay bool) {
	for namespace, wanted := range p.Wanted {
		before := l.Namespaces[namespace].Wanted
		wanted.Until = now.Add(grace)
		if before != nil && !onItsWay {
			wanted.Until = before.Until
		}
	}
}
