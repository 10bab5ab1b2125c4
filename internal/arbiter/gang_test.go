// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/internal/arbiter"
)

// newGang adds a tenant whose processes, one a GPU, launch what runs only together.
func (s *sim) newGang(name string, compute uint32, capped bool, kernel arbiter.Time, gpus ...byte) *gang {
	g := &gang{}
	for _, gpu := range gpus {
		p := &proc{kernel: kernel, gang: g}
		g.members = append(g.members, p)
		s.share(name, gpu, compute*100, capped, p)
	}
	return g
}

// useful is what a gang got done, in points of a time.
func (g *gang) useful(of arbiter.Time) float64 {
	p := g.members[0]
	return 100 * float64(arbiter.Time(p.done)*p.kernel) / float64(of)
}

func TestGangs(t *testing.T) {
	all := []byte{0, 1, 2, 3, 4, 5, 6, 7}
	for _, tc := range []struct {
		name string
		make func(s *sim) (gangs []*gang, want []float64)
	}{
		{name: "a gang alone has everything", make: func(s *sim) ([]*gang, []float64) {
			return []*gang{s.newGang("a", 10, false, 500*us, 0, 1)}, []float64{100}
		}},
		{name: "two gangs on two GPUs have halves", make: func(s *sim) ([]*gang, []float64) {
			return []*gang{s.newGang("a", 50, false, 500*us, 0, 1), s.newGang("b", 50, false, 500*us, 0, 1)}, []float64{50, 50}
		}},
		{name: "short collectives do as well", make: func(s *sim) ([]*gang, []float64) {
			return []*gang{s.newGang("a", 50, false, 100*us, 0, 1), s.newGang("b", 50, false, 100*us, 1, 0)}, []float64{50, 50}
		}},
		{name: "two gangs on eight GPUs have their shares", make: func(s *sim) ([]*gang, []float64) {
			return []*gang{s.newGang("a", 30, false, 500*us, all...), s.newGang("b", 60, false, 500*us, all...)}, []float64{33, 66}
		}},
		{name: "a gang with a cap keeps it", make: func(s *sim) ([]*gang, []float64) {
			return []*gang{s.newGang("a", 30, true, 500*us, all...), s.newGang("b", 60, false, 500*us, all...)}, []float64{30, 69}
		}},
		{name: "gangs that overlap in a ring go on", make: func(s *sim) ([]*gang, []float64) {
			return []*gang{
				s.newGang("a", 50, false, 500*us, 0, 1), s.newGang("b", 50, false, 500*us, 1, 2), s.newGang("c", 50, false, 500*us, 2, 0),
			}, []float64{33, 33, 33}
		}},
		{name: "a gang beside single tenants is not starved", make: func(s *sim) ([]*gang, []float64) {
			g := s.newGang("a", 50, false, 500*us, 0, 1)
			s.share("x", 0, 5000, false, &proc{kernel: 500 * us})
			s.share("y", 1, 2500, false, &proc{kernel: 100 * us})
			s.share("z", 1, 2500, false, &proc{kernel: 2 * ms})
			return []*gang{g}, []float64{50}
		}},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s, seed %d", tc.name, seed), func(t *testing.T) {
				s := newSim(t, seed)
				gangs, want := tc.make(s)
				s.run(10 * sec)
				for i, g := range gangs {
					got := g.useful(10 * sec)
					t.Logf("gang %d got %.2f points done and spun %.2f", i, got, 100*float64(g.spun)/float64(len(g.members))/float64(10*sec))
					if got < 0.9*want[i] || got > want[i]+2 {
						t.Errorf("gang %d got %.2f points done, want %.0f", i, got, want[i])
					}
					for _, p := range g.members {
						// Its turn comes with one slice in so many, and two late.
						if p.worst > arbiter.Time(100/want[i]+2)*25*ms {
							t.Errorf("gang %d waited %d ms", i, p.worst/ms)
						}
					}
				}
				for i, g := range s.gates {
					t.Logf("gate %d had %.2f points, overran %d times", i, portion(g, 10*sec), g.overruns)
				}
			})
		}
	}
}

func TestSingleTenantsOfGPUsThatAGangJoinsHaveTheirShares(t *testing.T) {
	s := newSim(t, 1)
	gang := s.newGang("a", 50, false, 500*us, 0, 1)
	s.share("x", 0, 5000, false, &proc{kernel: 500 * us})
	s.share("y", 1, 2500, false, &proc{kernel: 100 * us})
	s.share("z", 1, 2500, false, &proc{kernel: 2 * ms})
	s.run(20 * sec)
	for i, want := range []float64{50, 50, 50, 25, 25} {
		within(t, fmt.Sprintf("gate %d", i), portion(s.gates[i], 20*sec), want, 2.5)
	}
	// Once the gang sleeps the GPUs have nothing to do with each other.
	for _, p := range gang.members {
		p.to = s.now
	}
	s.run(sec)
	before := s.gates[2].procs[0].got
	s.run(sec)
	if got := 100 * float64(s.gates[2].procs[0].got-before) / float64(sec); got < 99.5 {
		t.Errorf("a tenant alone on its GPU had %.2f points", got)
	}
}

func TestAProcessOfAGangThatTellsLateHowFarItIsIsFollowed(t *testing.T) {
	s := newScript(t)
	behind := s.a.Add(s.now, arbiter.Share{Tenant: "gang", Device: [16]byte{1}, Compute: 5000}, arbiter.Report{Wants: true})
	ahead := s.a.Add(s.now, arbiter.Share{Tenant: "gang", Device: [16]byte{2}, Compute: 5000}, arbiter.Report{Wants: true})
	other := s.a.Add(s.now, arbiter.Share{Tenant: "other", Device: [16]byte{1}, Compute: 5000}, arbiter.Report{Wants: true})
	s.says[other] = arbiter.Report{Wants: true}
	for _, g := range []arbiter.Gate{behind, ahead} {
		s.says[g] = arbiter.Report{Wants: true}
	}
	s.step()
	s.did = nil
	for _, g := range []arbiter.Gate{behind, ahead} {
		s.say(g, arbiter.Report{Running: true, Ran: true})
	}
	s.wait(100 * ms)
	s.did = nil // it has overrun by now: neither process has told how far it is
	s.say(ahead, arbiter.Report{Running: true, Ran: true, Launches: 6})
	s.step()
	s.want("when one tells", fmt.Sprintf("finish %d", behind), fmt.Sprintf("finish %d", ahead))
}

func TestProcessesOfAGangThatCountFromDifferentPlacesDoNotWaitForEver(t *testing.T) {
	for _, tc := range []struct {
		name   string
		behind arbiter.Report
		want   []string
	}{
		{
			name:   "one that is drained goes on by one launch where the other runs",
			behind: arbiter.Report{Wants: true, Ran: true, Waiting: 17},
			want:   []string{"finish 0"},
		},
		{
			name:   "where all run and all wait, all do",
			behind: arbiter.Report{Wants: true, Running: true, Ran: true, Launches: 17},
			want:   []string{"finish 0", "finish 1"},
		},
		{
			name:   "one that does not wait is left alone",
			behind: arbiter.Report{Ran: true, Running: true, Launches: 17},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScript(t)
			for device := range byte(2) {
				g := s.a.Add(s.now, arbiter.Share{Tenant: "gang", Device: [16]byte{device}, Compute: 5000}, arbiter.Report{Wants: true})
				s.says[g] = arbiter.Report{Wants: true}
			}
			other := s.a.Add(s.now, arbiter.Share{Tenant: "other", Device: [16]byte{0}, Compute: 5000}, arbiter.Report{Wants: true})
			s.says[other] = arbiter.Report{Wants: true}
			s.step()
			s.say(1, arbiter.Report{Wants: true, Running: true, Ran: true, Launches: 17})
			s.say(0, arbiter.Report{Running: true, Ran: true, Launches: 17})
			s.wait(50 * ms) // overrun
			s.says[0] = tc.behind
			s.wait(11 * ms)
			s.did = nil
			s.wait(11 * ms)
			s.did = slices.DeleteFunc(s.did, func(did string) bool { return !strings.HasPrefix(did, "finish") })
			s.want("while it overruns", append([]string{}, tc.want...)...)
		})
	}
}
