// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"maps"
	"sync"
)

// Counts are the lengths of the queues. Whoever writes quotas' status reads them.
type Counts struct {
	changed func(ledger string)

	mu      sync.Mutex
	lengths map[string]map[string]int32 // by ledger, then namespace
	home    map[string]string           // ledger by namespace
}

// NewCounts keeps the lengths of queues. It calls changed, if there is one, with each ledger where one changes.
func NewCounts(changed func(ledger string)) *Counts {
	return &Counts{changed: changed, lengths: map[string]map[string]int32{}, home: map[string]string{}}
}

// Of is how many pods of a namespace wait for room.
func (c *Counts) Of(namespace string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lengths[c.home[namespace]][namespace]
}

// set replaces the lengths of a ledger's queues. It tells which namespaces have no queue any more.
func (c *Counts) set(ledger string, lengths map[string]int32) (gone []string) {
	changed, gone := c.replace(ledger, lengths)
	if changed && c.changed != nil {
		c.changed(ledger)
	}
	return gone
}

func (c *Counts) replace(ledger string, lengths map[string]int32) (changed bool, gone []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.lengths[ledger]
	for namespace := range before {
		if _, stays := lengths[namespace]; !stays && c.home[namespace] == ledger {
			delete(c.home, namespace)
			gone = append(gone, namespace)
		}
	}
	for namespace := range lengths {
		c.home[namespace] = ledger
	}
	c.lengths[ledger] = lengths
	if len(lengths) == 0 {
		delete(c.lengths, ledger)
	}
	return !maps.Equal(before, lengths), gone
}
