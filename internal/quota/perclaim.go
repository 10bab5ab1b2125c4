// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Defaults are the amounts of each GPU, memory in bytes, that the namespace's quotas give to a request of a pool that
// names none: of each amount what the oldest quota says that counts the pool and says anything.
func (d *Domain) Defaults(namespace, pool string) Amounts {
	found := Amounts{}
	quotas := d.Of(namespace)
	for i := range quotas {
		if !quotas[i].Counts(pool) {
			continue
		}
		for name, value := range quotas[i].Default {
			if _, said := found[name]; !said {
				found[name] = value
			}
		}
	}
	return found
}

// OutOfBounds holds what an allocation gives against perClaim of the namespace's quotas; nil where it is within.
func (d *Domain) OutOfBounds(namespace string, grants []Grant) *Refusal {
	quotas := d.Of(namespace)
	for i := range quotas {
		q := &quotas[i]
		for _, grant := range grants {
			if !counts(q.Pools, grant.Pool) {
				continue
			}
			if refusal := q.outOfBounds(grant.Amounts, grant.Amounts); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// OutOfBoundsEarly holds a request against perClaim before its devices are known. It refuses only what would be out of bounds
// whatever serves it.
func (d *Domain) OutOfBoundsEarly(namespace string, demand Demand) *Refusal {
	quotas := d.Of(namespace)
	for i := range quotas {
		for _, w := range demand.wishes {
			if refusal := quotas[i].refusesAll(w); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// refusesAll is the refusal of a request's first option, if there is none that is within bounds.
func (q *Quota) refusesAll(w wish) *Refusal {
	var first *Refusal
	for _, o := range w.options {
		if o.pool == "" || !q.Counts(o.pool) {
			return nil
		}
		refusal := q.outOfBounds(o.least, o.most)
		if refusal == nil {
			return nil
		}
		if first == nil {
			first = refusal
		}
	}
	return first
}

func (q *Quota) outOfBounds(least, most Amounts) *Refusal {
	for _, name := range []string{v1alpha1.QuotaMemory, v1alpha1.QuotaCompute} {
		if bound, bounded := q.Max[name]; bounded && least[name] > bound {
			return q.perClaim(name, least[name], bound, "at most")
		}
		known, isKnown := most[name]
		if bound, bounded := q.Min[name]; bounded && isKnown && known < bound {
			return q.perClaim(name, known, bound, "at least")
		}
	}
	return nil
}

func (q *Quota) perClaim(name string, asked, bound int64, which string) *Refusal {
	return &Refusal{
		Reason: RefusedPerClaim, Never: true, Namespace: q.Namespace, Quota: q.Name,
		Resource: name, Asked: asked, Allowed: bound,
		Sentence: fmt.Sprintf("%s: %s of one GPU asked, but %s (perClaim) allows %s %s of each GPU", name,
			Format(name, asked), q, which, Format(name, bound)),
	}
}
