// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math/bits"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// maxSummary is the longest summary that the schema allows.
const maxSummary = 512

// Standing is how a quota stands.
type Standing struct {
	// Used is what is held of each amount in hard, also where that is 0.
	Used Amounts
	// Above is what is held above hard.
	Above Amounts
	// Borrowed is what is held above the guarantee, of amounts that the cohort shares.
	Borrowed Amounts
	// Lent is what others hold of the guarantee.
	Lent Amounts
}

// Standings is how each quota of a domain stands.
func (d *Domain) Standings(l *Ledger) map[types.NamespacedName]Standing {
	u := l.use("")
	groups := d.groups()
	standings := make(map[types.NamespacedName]Standing, len(d.Quotas))
	for i := range d.Quotas {
		q := &d.Quotas[i]
		held := u.of(q.Namespace, q.Pools)
		s := Standing{Used: Amounts{}, Above: Amounts{}}
		for name, hard := range q.Hard {
			s.Used[name] = held[name]
			if held[name] > hard {
				s.Above[name] = held[name] - hard
			}
		}
		for _, g := range groups {
			if q.Joined && sameScope(q.Pools, g.pools) {
				s.Borrowed, s.Lent = g.borrowedBy(u, q.Namespace), g.lentBy(u, q.Namespace)
			}
		}
		standings[types.NamespacedName{Namespace: q.Namespace, Name: q.Name}] = s
	}
	return standings
}

func (g group) borrowedBy(u use, namespace string) Amounts {
	held := u.of(namespace, g.pools)
	found := Amounts{}
	for name := range g.capacity() {
		if over := held[name] - g.members[namespace][name]; over > 0 {
			found[name] = over
		}
	}
	return found
}

// lentBy is a namespace's part of what is borrowed: of several lenders each has lent in proportion to what it does not
// use. Sums up to each lender, in the order of names, are rounded down, so that the parts make up the whole.
func (g group) lentBy(u use, namespace string) Amounts {
	found := Amounts{}
	for name := range g.capacity() {
		var all, unused, own int64
		var before int64 // what those before this one do not use
		for _, member := range sortedKeys(g.members) {
			left := g.members[member][name] - u.of(member, g.pools)[name]
			if left < 0 {
				all = add(all, -left)
				continue
			}
			if member < namespace {
				before = add(before, left)
			}
			if member == namespace {
				own = left
			}
			unused = add(unused, left)
		}
		all = min(all, unused)
		if lent := share64(all, add(before, own), unused) - share64(all, before, unused); lent > 0 {
			found[name] = lent
		}
	}
	return found
}

// share64 is all × part ÷ whole, rounded down.
func share64(all, part, whole int64) int64 {
	if whole <= 0 || part <= 0 || all <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(all), uint64(part))
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return int64(quotient)
}

// Summary is one line for people: used and hard of each amount, and how many pods wait.
func Summary(hard, used Amounts, waiting int32) string {
	var parts []string
	for _, name := range hard.Names() {
		parts = append(parts, strings.TrimPrefix(name, v1alpha1.QuotaMIGPrefix)+" "+ofHard(name, used[name], hard[name]))
	}
	if waiting > 0 {
		parts = append(parts, "waiting "+Format("", int64(waiting)))
	}
	return cut(strings.Join(parts, " · "))
}

// ofHard leaves a unit out that both numbers have.
func ofHard(name string, used, hard int64) string {
	first, second := Format(name, used), Format(name, hard)
	for _, unit := range []string{"Gi", "Mi"} {
		if strings.HasSuffix(first, unit) && strings.HasSuffix(second, unit) {
			first = strings.TrimSuffix(first, unit)
		}
	}
	return first + "/" + second
}

// cut keeps a line within what the schema allows, which counts characters.
func cut(line string) string {
	if utf8.RuneCountInString(line) <= maxSummary {
		return line
	}
	return string([]rune(line)[:maxSummary-1]) + "…"
}
