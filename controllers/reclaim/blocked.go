// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-gpu/sluice/internal/quota"
)

// tryAgain is how long a holder is spared after its eviction was forbidden.
const tryAgain = 30 * time.Second

// Blocked remembers whom disruption budgets protect, and who waits for that. It lives in memory: after a restart the
// Eviction API says the same again.
type Blocked struct {
	changed func(ledger string)

	mu  sync.Mutex
	all map[string]map[string]block // by ledger, then holder
}

// block is one holder that may not be evicted.
type block struct {
	until time.Time
	// owner is the namespace that waits within its guarantee.
	owner, why string
}

// NewBlocked remembers. It calls changed, if there is one, with each ledger where something changes.
func NewBlocked(changed func(ledger string)) *Blocked {
	return &Blocked{changed: changed, all: map[string]map[string]block{}}
}

// Why is what keeps borrowed pods from being evicted that a namespace waits for; "" for nothing.
func (b *Blocked) Why(namespace string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var reasons []string
	for _, known := range b.all {
		for name, blocked := range known {
			if blocked.owner == namespace {
				reasons = append(reasons, fmt.Sprintf("%s may not be evicted: %s", name, blocked.why))
			}
		}
	}
	slices.Sort(reasons)
	switch more := len(reasons) - 1; {
	case more < 0:
		return ""
	case more == 0:
		return reasons[0]
	default:
		return fmt.Sprintf("%s; and %d more", reasons[0], more)
	}
}

// add remembers that a holder may not be evicted. It says whether that is new.
func (b *Blocked) add(ledger string, victim *quota.Victim, why string, now time.Time) bool {
	b.mu.Lock()
	known := b.all[ledger]
	if known == nil {
		known = map[string]block{}
		b.all[ledger] = known
	}
	name := key(&victim.Holder)
	_, before := known[name]
	known[name] = block{until: now.Add(tryAgain), owner: victim.For.Namespace, why: strings.TrimSuffix(why, ".")}
	b.mu.Unlock()
	if !before && b.changed != nil {
		b.changed(ledger)
	}
	return !before
}

// without leaves out the holders that are spared for now: they stay held.
func (b *Blocked) without(ledger string, holders []quota.Holder, now time.Time) []quota.Holder {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := make([]quota.Holder, 0, len(holders))
	for i := range holders {
		blocked, found := b.all[ledger][key(&holders[i])]
		if !found || !now.Before(blocked.until) {
			kept = append(kept, holders[i])
		}
	}
	return kept
}

// retain forgets the holders that are not there any more, or that end.
func (b *Blocked) retain(ledger string, holders []quota.Holder) {
	there := map[string]bool{}
	for i := range holders {
		there[key(&holders[i])] = !holders[i].Ending
	}
	b.mu.Lock()
	before := len(b.all[ledger])
	for name := range b.all[ledger] {
		if !there[name] {
			delete(b.all[ledger], name)
		}
	}
	changed := len(b.all[ledger]) != before
	if len(b.all[ledger]) == 0 {
		delete(b.all, ledger)
	}
	b.mu.Unlock()
	if changed && b.changed != nil {
		b.changed(ledger)
	}
}
