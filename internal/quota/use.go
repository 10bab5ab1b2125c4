// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
)

// use is what namespaces hold at a moment: counted, reserved, and what somebody who tries a plan out has added.
type use struct {
	charges map[string]Charges
	more    map[string][]Cost
	less    map[string][]Cost
}

// use sums a ledger. The reservation of one claim, which is asked for again, can be left out.
func (l *Ledger) use(without string) use {
	u := use{charges: make(map[string]Charges, len(l.Namespaces)), more: map[string][]Cost{}, less: map[string][]Cost{}}
	for name, entry := range l.Namespaces {
		u.charges[name] = entry.Counted
	}
	cloned := map[string]bool{}
	for uid, r := range l.Reservations {
		if uid == without {
			continue
		}
		if !cloned[r.Namespace] {
			u.charges[r.Namespace] = u.charges[r.Namespace].Clone()
			cloned[r.Namespace] = true
		}
		u.charges[r.Namespace].AddAll(r.Charges)
	}
	return u
}

// of is what a namespace holds in the pools of a quota.
func (u use) of(namespace string, pools []string) Amounts {
	sum := u.charges[namespace].In(pools)
	for _, cost := range u.more[namespace] {
		sum = sum.Plus(cost.In(pools))
	}
	for _, cost := range u.less[namespace] {
		for name, value := range cost.In(pools) {
			sum[name] = max(0, sum[name]-value)
		}
	}
	return sum
}

// nothing says whether nobody holds anything.
func (u use) nothing() bool { return len(u.charges) == 0 && len(u.more) == 0 }

func (u use) add(namespace string, cost Cost) {
	u.more[namespace] = append(u.more[namespace], cost)
}

// onlyMoreOf leaves out what was added for other namespaces.
func (u use) onlyMoreOf(namespace string) use {
	return use{charges: u.charges, more: map[string][]Cost{namespace: u.more[namespace]}, less: u.less}
}

// remove takes away what is about to end.
func (u use) remove(namespace string, cost Cost) {
	u.less[namespace] = append(u.less[namespace], cost)
}

// clone can be changed apart. Charges are shared: they do not change.
func (u use) clone() use {
	cloned := use{charges: u.charges, more: make(map[string][]Cost, len(u.more)), less: make(map[string][]Cost, len(u.less))}
	for name, costs := range u.more {
		cloned.more[name] = slices.Clip(costs)
	}
	for name, costs := range u.less {
		cloned.less[name] = slices.Clip(costs)
	}
	return cloned
}

// Used is what a namespace holds of pools, nil meaning all: counted and reserved.
func (l *Ledger) Used(namespace string, pools []string) Amounts {
	return l.use("").of(namespace, pools)
}
