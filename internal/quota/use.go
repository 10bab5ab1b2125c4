// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"time"
)

// use is what namespaces hold at a moment: counted, reserved, and what somebody who tries a plan out has added.
type use struct {
	charges map[string]Charges
	more    map[string][]Cost
}

// useAt sums a ledger. The reservation of one claim, which is asked for again, can be left out.
func (l *Ledger) useAt(now time.Time, without string) use {
	u := use{charges: make(map[string]Charges, len(l.Namespaces)), more: map[string][]Cost{}}
	for name, entry := range l.Namespaces {
		u.charges[name] = entry.Counted
	}
	cloned := map[string]bool{}
	for uid, r := range l.Reservations {
		if uid == without || !r.Expiry.After(now) {
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
	return sum
}

func (u use) add(namespace string, cost Cost) {
	u.more[namespace] = append(u.more[namespace], cost)
}

// Used is what a namespace holds of pools, nil meaning all: counted and reserved.
func (l *Ledger) Used(namespace string, pools []string, now time.Time) Amounts {
	return l.useAt(now, "").of(namespace, pools)
}
