// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"maps"
	"slices"
	"strings"
)

// group is the quotas of a cohort that count the same pools and so lend to each other.
type group struct {
	pools []string
	// members are the guarantees by namespace. Of several quotas of a namespace the larger guarantee holds, within the
	// smallest hard.
	members map[string]Amounts
	// shared is the sum of the guarantees.
	shared Amounts
}

// groups are the groups of a domain, in the order of their pools.
func (d *Domain) groups() []group {
	found := map[string]*group{}
	for i := range d.Quotas {
		q := &d.Quotas[i]
		if !q.Joined {
			continue
		}
		key := strings.Join(q.Pools, ",")
		if found[key] == nil {
			found[key] = &group{pools: q.Pools, members: map[string]Amounts{}}
		}
		g := found[key]
		g.members[q.Namespace] = g.members[q.Namespace].Largest(q.Guaranteed)
	}
	groups := make([]group, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		g := *found[key]
		for i := range d.Quotas {
			d.Quotas[i].bound(g)
		}
		g.shared = Amounts{}
		for _, guarantee := range g.members {
			for name, value := range guarantee {
				g.shared[name] = add(g.shared[name], value)
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// bound keeps a namespace's guarantee within its hard amounts.
func (q *Quota) bound(g group) {
	guarantee, member := g.members[q.Namespace]
	if !member || !sameScope(g.pools, q.Pools) {
		return
	}
	for name, value := range guarantee {
		if hard, bounded := q.Hard[name]; bounded {
			guarantee[name] = min(value, hard)
		}
	}
}

// capacity is what the group may hold together, to be read only. What it does not name is not shared.
func (g group) capacity() Amounts { return g.shared }

// used is what the group holds together.
func (g group) used(u use) Amounts {
	sum := Amounts{}
	if u.nothing() {
		return sum
	}
	for name := range g.members {
		sum = sum.Plus(u.of(name, g.pools))
	}
	return sum
}

// covers says whether a namespace that holds so much is within its guarantee, in all that is shared.
func (g group) covers(namespace string, held, shared Amounts) bool {
	guarantee := g.members[namespace]
	for name := range shared {
		if held[name] > guarantee[name] {
			return false
		}
	}
	return true
}

// withheld is what a claim must leave to others that wait within their guarantees. A claim within its own leaves it only
// to those that have waited longer, and not for ever: a guarantee that cannot be met, because a disruption budget keeps
// borrowers, must not keep others from theirs.
func (g group) withheld(l *Ledger, u use, asking asking) Amounts {
	sum := Amounts{}
	since := asking.since()
	for name, guarantee := range g.members {
		wanted := l.Namespaces[name].Wanted
		if wanted == nil || (asking.within && (name == asking.namespace || !wanted.Since.Before(since) || !asking.now.Before(wanted.Until))) {
			continue
		}
		held := u.of(name, g.pools)
		for amount, value := range wanted.Charges.In(g.pools) {
			sum[amount] = add(sum[amount], min(value, max(0, guarantee[amount]-held[amount])))
		}
	}
	return sum
}
