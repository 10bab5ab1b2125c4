// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/controllers/tenants"
)

// note is what was done to a pod that the cache may not show yet. It lives in memory: after a restart the pod itself says
// what was written, a moment late at most.
type note struct {
	released bool
	told     word
	toldAt   time.Time
}

// podNotes are the notes on the pods of one ledger.
type podNotes map[types.UID]note

// notes are those of all ledgers. Each ledger is served by one worker at a time.
type notes struct {
	mu  sync.Mutex
	all map[string]podNotes
}

// take gives the notes on the pods that are still there, and forgets the others.
func (n *notes) take(ledger string, state tenants.State) podNotes {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.all[ledger]
	kept := podNotes{}
	for _, pods := range [][]tenants.Pod{state.Waiting, state.UnderWay, state.Apart, state.Unqueued} {
		for i := range pods {
			if noted, found := before[pods[i].Object.UID]; found {
				kept[pods[i].Object.UID] = noted
			}
		}
	}
	if n.all == nil {
		n.all = map[string]podNotes{}
	}
	if len(kept) == 0 && len(state.Waiting)+len(state.Unqueued)+len(state.Apart) == 0 {
		delete(n.all, ledger)
		return kept
	}
	n.all[ledger] = kept
	return kept
}

// split counts pods whose gate was lifted as under way, also where the cache still shows the gate.
func (p podNotes) split(state tenants.State) (underWay, waiting []tenants.Pod) {
	underWay = append(underWay, state.UnderWay...)
	for _, pod := range state.Waiting {
		if p[pod.Object.UID].released {
			underWay = append(underWay, pod)
			continue
		}
		waiting = append(waiting, pod)
	}
	return underWay, waiting
}
