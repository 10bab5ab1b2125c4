// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"time"
)

// Reason is why something is refused.
type Reason string

// Reasons of refusals.
const (
	// RefusedHard: with it the namespace would hold more than a quota's hard.
	RefusedHard Reason = "AboveHard"
	// RefusedCohort: it would borrow more than the cohort has to lend.
	RefusedCohort Reason = "NothingToBorrow"
	// RefusedLent: it is within the guarantee; what was lent is on its way back.
	RefusedLent Reason = "WaitsForLent"
	// RefusedPerClaim: an amount of one claim is out of perClaim's bounds.
	RefusedPerClaim Reason = "OutOfBounds"
	// RefusedTenancy: the pool is not for the namespace.
	RefusedTenancy Reason = "NotATenant"
	// RefusedNoQuota: the pool is only for namespaces with a quota.
	RefusedNoQuota Reason = "QuotaRequired"
	// RefusedUncounted: what the namespace holds is not known yet.
	RefusedUncounted Reason = "NotCounted"
	// RefusedBusy: too many allocations are under way.
	RefusedBusy Reason = "Busy"
)

// Refusal is why something is refused, as a tenant reads it. It is an error where one is wanted.
type Refusal struct { //nolint:errname // a decision first, and an error only to who returns it as one
	// Reason is why.
	Reason Reason
	// Never is true where it could not fit however long it waits.
	Never bool
	// Namespace and Quota name the GPUQuota; Quota is "" where none is the reason.
	Namespace, Quota string
	// Resource is the name of the amount; "" where none is the reason.
	Resource string
	// Asked, Used and Allowed are amounts of it.
	Asked, Used, Allowed int64
	// Sentence is for people.
	Sentence string
}

// Error is the sentence.
func (r *Refusal) Error() string { return r.Sentence }

// asking is what a verdict is about.
type asking struct {
	namespace string
	cost      Cost
	now       time.Time
	made      time.Time // when the claim or pod was made; zero: now
	within    bool      // with it, the namespace stays within its guarantee
}

// since is since when it waits.
func (a asking) since() time.Time {
	if a.made.IsZero() {
		return a.now
	}
	return a.made
}

// Verdict decides on an allocation; nil allows it. Nothing is allowed in a namespace that the ledger has not counted.
// Whoever allows an allocation reserves it in the same write.
func (d *Domain) Verdict(l *Ledger, ask Ask, now time.Time) *Refusal {
	if ask.Charges.Zero() {
		return nil
	}
	entry, found := l.Namespaces[ask.Namespace]
	switch {
	case found && entry.Version == "" && entry.Unknown > 0:
		return notDescribed(ask.Namespace, entry.Unknown)
	case !found || entry.Version == "" || entry.MovedTo != "":
		return notCounted(ask.Namespace)
	case !l.reserved(ask.UID) && !l.hasRoom(ask.Namespace, len(d.Namespaces()) > 1):
		return busy(ask.Namespace)
	}
	return d.fits(l, l.use(ask.UID), asking{namespace: ask.Namespace, cost: ask.Charges, now: now, made: ask.Since})
}

// Fits decides whether something of a cost fits now, charging nothing: the early answer on a pod or a claim. Where the
// namespace is not counted yet, only what could never fit is refused.
func (d *Domain) Fits(l *Ledger, namespace string, cost Cost, now time.Time) *Refusal {
	if refusal := d.Never(namespace, cost); refusal != nil || l.Namespaces[namespace].Version == "" {
		return refusal
	}
	return d.fits(l, l.use(""), asking{namespace: namespace, cost: cost, now: now})
}

// Never decides whether something could not fit even if nothing else were held.
func (d *Domain) Never(namespace string, cost Cost) *Refusal {
	return d.never(d.groups(), namespace, cost)
}

func (d *Domain) never(groups []group, namespace string, cost Cost) *Refusal {
	empty := NewLedger(d.Ledger)
	return d.fitsIn(groups, empty, empty.use(""), asking{namespace: namespace, cost: cost})
}

func (d *Domain) fits(l *Ledger, u use, a asking) *Refusal { return d.fitsIn(d.groups(), l, u, a) }

// fitsIn decides where the domain's groups are known already.
func (d *Domain) fitsIn(groups []group, l *Ledger, u use, a asking) *Refusal {
	quotas := d.Of(a.namespace)
	for i := range quotas {
		if refusal := quotas[i].holds(u, a); refusal != nil {
			return refusal
		}
	}
	for _, g := range groups {
		if refusal := d.lends(g, l, u, a); refusal != nil {
			return refusal
		}
	}
	return nil
}

// holds decides about hard. What the request does not ask for is not held against it, also where it is exceeded.
func (q *Quota) holds(u use, a asking) *Refusal {
	asked := a.cost.In(q.Pools)
	used := u.of(a.namespace, q.Pools)
	for _, name := range q.Hard.Names() {
		hard := q.Hard[name]
		if asked[name] > 0 && add(used[name], asked[name]) > hard {
			return aboveHard(q, name, asked[name], used[name], hard)
		}
	}
	return nil
}

// lends decides about what a group of quotas shares.
func (d *Domain) lends(g group, l *Ledger, u use, a asking) *Refusal {
	guarantee, member := g.members[a.namespace]
	asked := a.cost.In(g.pools)
	if !member || asked.Zero() {
		return nil
	}
	capacity := g.capacity()
	own := u.of(a.namespace, g.pools)
	a.within = g.covers(a.namespace, own.Plus(asked), capacity)
	together := g.used(u)
	withheld := g.withheld(l, u, a)
	for _, name := range capacity.Names() {
		taken := add(together[name], withheld[name])
		if asked[name] == 0 || add(taken, asked[name]) <= capacity[name] {
			continue
		}
		share := shareOf{
			name: name, asked: asked[name], used: own[name], guarantee: guarantee[name],
			capacity: capacity[name], left: max(0, capacity[name]-taken),
		}
		quota := d.joined(a.namespace, g)
		if a.within {
			return waitsForLent(quota, share)
		}
		return nothingToBorrow(quota, share)
	}
	return nil
}

// joined is the quota by which a namespace belongs to a group.
func (d *Domain) joined(namespace string, g group) *Quota {
	quotas := d.Of(namespace)
	for i := range quotas {
		if quotas[i].Joined && sameScope(quotas[i].Pools, g.pools) {
			return &quotas[i]
		}
	}
	return &Quota{Namespace: namespace}
}
