// SPDX-License-Identifier: Apache-2.0

package assign_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

// poolStates are the ways in which one pool can stand to a GPU; nil is a pool that does not exist.
func poolStates(name string, created int) []*v1alpha1.GPUPool {
	states := []*v1alpha1.GPUPool{nil}
	for _, form := range []poolOption{func(*v1alpha1.GPUPool) {}, exclusive, mig} {
		for _, standing := range []poolOption{func(*v1alpha1.GPUPool) {}, deleting, elsewhere, unreadable} {
			p := pool(name, created, form, standing)
			states = append(states, &p)
		}
	}
	return states
}

// decisionsInForce are the decisions that may be in force for one of two pools, tainted or not.
func decisionsInForce() []*v1alpha1.GPUDecision {
	decisions := []*v1alpha1.GPUDecision{nil}
	for i, name := range []string{"a", "b"} {
		for _, form := range []poolOption{memoryPercent(150), exclusive, mig} {
			for _, taint := range []v1alpha1.TaintReason{
				"", v1alpha1.TaintPoolDeleted, v1alpha1.TaintPoolChanged, v1alpha1.TaintNotSelected,
			} {
				decisions = append(decisions, decision(pool(name, i+1, form), taint))
			}
		}
	}
	return decisions
}

// everySituation calls f with every combination of two pools, a decision in force and the state of one GPU.
func everySituation(f func(situation)) {
	for _, a := range poolStates("a", 1) {
		for _, b := range poolStates("b", 2) {
			var pools []v1alpha1.GPUPool
			for _, p := range []*v1alpha1.GPUPool{a, b} {
				if p != nil {
					pools = append(pools, *p)
				}
			}
			for _, inForce := range decisionsInForce() {
				for bits := range 1 << 5 {
					f(situation{
						pools: pools, inForce: inForce,
						allocated: bits&1 != 0, missing: bits&2 != 0, unseen: bits&4 != 0, hidden: bits&8 != 0, settled: bits&16 != 0,
					})
				}
			}
		}
	}
}

// TestALostDecisionTakesNothingFromATenant checks, for every combination of two pools and a published form, that a GPU
// whose decision is lost keeps pool and form while somebody holds it.
func TestALostDecisionTakesNothingFromATenant(t *testing.T) {
	everySituation(func(s situation) {
		if s.inForce == nil || s.missing || !s.allocated {
			return
		}
		s.forgotten, s.inForce = s.inForce, nil
		got, _ := s.decide()
		if form(got) != form(s.forgotten) {
			t.Errorf("a GPU with tenants changed from %s to %s: %+v", form(s.forgotten), form(got), s)
		}
	})
}

func form(d *v1alpha1.GPUDecision) string {
	if d == nil {
		return "none"
	}
	return fmt.Sprintf("%s/%s/%s", d.Pool, d.Partitioning, d.Sharing)
}

// TestEverySituation checks, for every combination of two pools, what must hold whatever the decision is.
func TestEverySituation(t *testing.T) {
	count := 0
	everySituation(func(s situation) {
		count++
		got, settling := s.decide()
		replaced := s.inForce != nil && form(got) != form(s.inForce)
		switch {
		case replaced && s.allocated:
			t.Errorf("a GPU with tenants changed from %s to %s: %+v", form(s.inForce), form(got), s)
		case replaced && !s.settled:
			t.Errorf("a GPU changed before its taint settled: %+v", s)
		case replaced && s.inForce.Taint == "":
			t.Errorf("a GPU changed before it was tainted: %+v", s)
		case settling && s.allocated:
			t.Errorf("a GPU with tenants only waits for the settle time: %+v", s)
		case s.inForce == nil && got != nil && got.Taint != "":
			t.Errorf("a new GPU is tainted: %+v", s)
		}

		// The same situation with the result in force must lead to the same result, or two writes would alternate.
		again := s
		again.inForce, again.settled, again.unseen = got, false, true
		again.hidden = again.hidden || replaced // the agent does not offer the new form before it has seen it
		stable, _ := again.decide()
		if diff := cmp.Diff(got, stable); diff != "" {
			t.Errorf("deciding again gives another result (-first +second):\n%s%+v", diff, s)
		}
	})
	if count < 50_000 {
		t.Errorf("want every combination, got only %d", count)
	}
}

// TestEveryDrainEnds checks that without tenants each GPU ends at the pool that has it next, or at none.
func TestEveryDrainEnds(t *testing.T) {
	everySituation(func(s situation) {
		if s.allocated || s.missing || s.inForce == nil {
			return
		}
		for i := range s.pools {
			if _, err := assign.NodeSelector(&s.pools[i]); err != nil && s.pools[i].Name == s.inForce.Pool {
				return // such a pool keeps a GPU that it would not get
			}
		}
		s.unseen, s.hidden, s.settled = false, false, true
		for range 5 {
			s.inForce, _ = s.decide()
		}
		fresh := s
		fresh.inForce = nil
		want, _ := fresh.decide()
		if diff := cmp.Diff(want, s.inForce); diff != "" {
			t.Errorf("a drained GPU (-want +got):\n%s%+v", diff, s)
		}
	})
}
