// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

// settling remembers since when each taint is known to be published. Scheduler and kubelet act on what they last saw, so
// an allocation may still be on its way for a moment. It is memory only: after a restart every taint settles anew.
type settling struct {
	time  time.Duration
	clock clock.PassiveClock

	mu    sync.Mutex
	since map[string]map[string]time.Time // by node, by UUID
}

func newSettling(settle time.Duration, c clock.PassiveClock) *settling {
	return &settling{time: settle, clock: c, since: map[string]map[string]time.Time{}}
}

// observe looks at a node's taints. It returns how old they are, and how long until the next one has settled.
func (s *settling) observe(node *v1alpha1.GPUNode) (ages map[string]assign.TaintAge, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	before := s.since[node.Name]
	after := map[string]time.Time{}
	ages = map[string]assign.TaintAge{}
	wait = s.time
	for _, d := range node.Decisions() {
		since, seen := before[d.UUID]
		switch {
		case seen && assign.TaintStands(node, d.UUID):
		case assign.TaintPublished(node, d.UUID):
			since = now
		default:
			continue
		}
		after[d.UUID] = since
		ages[d.UUID] = assign.TaintSettled
		if left := since.Add(s.time).Sub(now); left > 0 {
			ages[d.UUID] = assign.TaintSettling
			wait = min(wait, left)
		}
	}
	if len(after) == 0 {
		delete(s.since, node.Name)
		return ages, wait
	}
	s.since[node.Name] = after
	return ages, wait
}

// forget drops a node that does not exist any more.
func (s *settling) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, node)
}
