// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/arbiter"
)

// script is an arbiter that is told what happens, step by step.
type script struct {
	t    *testing.T
	a    *arbiter.Arbiter
	now  arbiter.Time
	next arbiter.Time
	// did are the actions since the last look at them.
	did []string
	// says is what the processes of a gate say when somebody looks.
	says map[arbiter.Gate]arbiter.Report
}

func newScript(t *testing.T) *script {
	t.Helper()
	return &script{t: t, a: arbiter.New(), now: sec, says: map[arbiter.Gate]arbiter.Report{}}
}

func (s *script) add(tenant string, compute uint32, seen arbiter.Report) arbiter.Gate {
	g := s.a.Add(s.now, arbiter.Share{Tenant: tenant, Compute: compute * 100}, seen)
	s.says[g] = seen
	return g
}

// say has a process ring.
func (s *script) say(g arbiter.Gate, seen arbiter.Report) {
	s.says[g] = seen
	s.a.Report(s.now, g, seen)
}

// step decides until nothing is to be looked at any more.
func (s *script) step() {
	for looks := true; looks; {
		looks = false
		actions, next := s.a.Step(s.now)
		s.next = next
		for _, action := range append([]arbiter.Action(nil), actions...) {
			if action.Verb == arbiter.Look {
				looks = true
				seen := s.says[action.Gate]
				seen.Live = action.Live
				s.a.Report(s.now, action.Gate, seen)
				continue
			}
			names := []string{"", "open", "reopen", "prolong", "close", "shut", "overrun", "finish"}
			s.did = append(s.did, fmt.Sprintf("%s %d", names[action.Verb], action.Gate))
		}
	}
}

func (s *script) wait(length arbiter.Time) {
	for end := s.now + length; s.now < end; {
		s.now = max(s.now+1, min(end, s.next))
		s.step()
	}
}

func (s *script) want(when string, want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.did); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
	s.did = nil
}

func TestATakeoverWaitsForWhatRuns(t *testing.T) {
	running := arbiter.Report{Running: true, Ran: true}
	for _, tc := range []struct {
		name    string
		drained bool
		want    []string
	}{
		{name: "what drains has its GPU until then", drained: true, want: []string{"open 1"}},
		{name: "what does not is run beside", want: []string{"overrun 0", "open 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScript(t)
			old := s.add("old", 50, running)
			s.add("new", 50, arbiter.Report{Wants: true})
			s.step()
			s.wait(10 * ms)
			s.want("while the old one runs")
			if tc.drained {
				s.say(old, arbiter.Report{Ran: true})
			}
			s.step()
			if !tc.drained {
				s.wait(20 * ms)
			}
			s.want("after that", tc.want...)
		})
	}
}

func TestAProcessThatWantsAgainIsLetInByAnotherSequence(t *testing.T) {
	s := newScript(t)
	g := s.add("a", 50, arbiter.Report{Wants: true})
	s.add("b", 50, arbiter.Report{Wants: true})
	s.step()
	s.want("at the beginning", "open 0")
	s.wait(5 * ms)
	s.did = nil
	// One process is done and wants again while another runs.
	s.say(g, arbiter.Report{Wants: true, Again: true, Ran: true, Running: true})
	s.step()
	s.want("when it wants again", "reopen 0")
	s.say(g, arbiter.Report{Ran: true})
	s.step()
	s.want("when all are done before the end", "shut 0", "open 1")
}

func TestATenantThatIsDeadAtTheGateIsNotOpened(t *testing.T) {
	s := newScript(t)
	g := s.add("a", 50, arbiter.Report{Wants: true})
	s.says[g] = arbiter.Report{} // only the living count
	s.step()
	s.want("at the beginning")
	if s.next != arbiter.Forever {
		t.Errorf("it is asked again at %d", s.next)
	}
}

func TestAStoppedTenantIsOfferedFewerSlices(t *testing.T) {
	s := newScript(t)
	s.add("stopped", 50, arbiter.Report{Wants: true})
	s.step()
	s.wait(sec)
	s.did = nil
	s.add("other", 50, arbiter.Report{Wants: true, Ran: true, Running: true})
	s.wait(10 * sec)
	opened := 0
	for _, action := range s.did {
		if action == "open 0" {
			opened++
		}
	}
	if opened > 20 {
		t.Errorf("it was opened %d times in ten seconds", opened)
	}
}

func TestSharesOfOneTenantOpenTogether(t *testing.T) {
	s := newScript(t)
	s.add("a", 20, arbiter.Report{Wants: true})
	s.add("a", 30, arbiter.Report{})
	s.step()
	s.want("when one wants", "open 0", "open 1")
	first := s.a.Snapshot(s.now, 0)
	if second := s.a.Snapshot(s.now, 1); first != second || first.State != arbiter.Opened || !first.Wants || first.Slices != 1 {
		t.Errorf("snapshots %+v and %+v", first, second)
	}
	s.a.Remove(s.now, 0)
	s.a.Remove(s.now, 1)
	s.step()
	if g := s.add("b", 10, arbiter.Report{}); g != 0 {
		t.Errorf("the number of a removed gate is not used again: %d", g)
	}
}

// BenchmarkSlices decides the slices of a GPU with as many tenants as one can have.
func BenchmarkSlices(b *testing.B) {
	a := arbiter.New()
	now := sec
	wants := arbiter.Report{Wants: true, Live: true}
	for i := range 128 {
		a.Add(now, arbiter.Share{Tenant: fmt.Sprint(i), Compute: 78}, wants)
	}
	b.ReportAllocs()
	for b.Loop() {
		actions, next := a.Step(now)
		looked := false
		for _, action := range actions {
			if action.Verb == arbiter.Look {
				looked = true
				a.Report(now, action.Gate, arbiter.Report{Wants: true, Ran: true, Live: true})
			}
		}
		if !looked {
			now = max(now, next)
		}
	}
}
