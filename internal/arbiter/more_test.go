// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-gpu/sluice/internal/arbiter"
)

// asked is a tenant of one GPU that always has work.
type asked struct {
	compute uint32
	capped  bool
	kernel  arbiter.Time
	procs   int
}

func TestSaturatingTenantsHaveTheirShares(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tenants []asked
		want    []float64
		points  float64
	}{
		{name: "halves are halves", tenants: []asked{{compute: 50}, {compute: 50}}, want: []float64{49.7, 49.7}, points: 1},
		{name: "what nobody asked for is divided like the rest", tenants: []asked{{compute: 30}, {compute: 60}}, want: []float64{33, 66}, points: 1},
		{name: "more than all is divided in proportion", tenants: []asked{{compute: 100}, {compute: 50}, {compute: 50}}, want: []float64{50, 25, 25}, points: 1},
		{name: "long kernels have no more than short ones", tenants: []asked{{compute: 50, kernel: 20 * ms}, {compute: 50, kernel: 100 * us}}, want: []float64{50, 50}, points: 1},
		{name: "a tenant with two caps around it has the rest", tenants: []asked{{compute: 30, capped: true}, {compute: 20, capped: true}, {compute: 10}}, want: []float64{30, 20, 49}, points: 1},
		{name: "two caps leave the rest idle", tenants: []asked{{compute: 30, capped: true}, {compute: 60, capped: true}}, want: []float64{30, 60}, points: 1},
		{name: "caps of all of the GPU are halves", tenants: []asked{{compute: 100, capped: true}, {compute: 100, capped: true}}, want: []float64{49.7, 49.7}, points: 1},
		{name: "a tenant alone has everything", tenants: []asked{{compute: 5}}, want: []float64{100}, points: 0.5},
		{name: "a tenant without a share alone has everything", tenants: []asked{{}}, want: []float64{100}, points: 0.5},
		{name: "tenants without a share weigh one point together", tenants: []asked{{compute: 99}, {}, {}, {}, {}}, want: []float64{98.5, 0.25, 0.25, 0.25, 0.25}, points: 0.7},
		{name: "processes of one tenant share its share", tenants: []asked{{compute: 25, procs: 4}, {compute: 75}}, want: []float64{25, 75}, points: 1},
		{name: "tiny shares are kept", tenants: []asked{{compute: 1}, {compute: 2}, {compute: 97}}, want: []float64{1, 2, 97}, points: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSim(t, 2)
			for i, tenant := range tc.tenants {
				var procs []*proc
				for range max(1, tenant.procs) {
					procs = append(procs, &proc{kernel: max(tenant.kernel, 500*us)})
				}
				s.share(fmt.Sprint(i), 0, tenant.compute*100, tenant.capped, procs...)
			}
			s.run(30 * sec)
			for i, g := range s.gates {
				within(t, fmt.Sprintf("tenant %d", i), portion(g, 30*sec), tc.want[i], tc.points)
			}
		})
	}
}

func TestHundredsOfTenants(t *testing.T) {
	s := newSim(t, 3)
	for i := range 100 {
		s.share(fmt.Sprint(i), 0, 100, i%2 == 0, &proc{kernel: 200 * us})
	}
	for i := range 28 {
		s.share(fmt.Sprint("idle ", i), 0, 0, false, &proc{kernel: 200 * us})
	}
	s.run(30 * sec)
	for i, g := range s.gates[:100] {
		within(t, fmt.Sprintf("tenant %d", i), portion(g, 30*sec), 0.95, 0.15)
		if worst := g.procs[0].worst; worst > 1300*ms {
			t.Errorf("tenant %d waited %d ms for a slice", i, worst/ms)
		}
	}
	if busy := 100 * float64(s.busy[0]) / float64(30*sec); busy < 95 {
		t.Errorf("the GPU was busy %.2f points of the time", busy)
	}
}

func TestRequestsAreServedSoon(t *testing.T) {
	for _, kernel := range []arbiter.Time{100 * us, 500 * us} {
		for _, every := range []arbiter.Time{8 * ms, 10 * ms, 50 * ms, 97 * ms} {
			t.Run(fmt.Sprintf("every %d ms beside kernels of %d us", every/ms, kernel/us), func(t *testing.T) {
				s := newSim(t, 4)
				served := &proc{kernel: 250 * us, every: every, work: ms}
				s.share("served", 0, 3000, false, served)
				s.share("saturating", 0, 7000, false, &proc{kernel: kernel})
				s.run(sec)
				served.waits = nil // who begins at the same moment waits for a slice
				s.run(20 * sec)
				slices.Sort(served.waits)
				p99 := served.waits[len(served.waits)*99/100]
				t.Logf("p99 %.2f ms, the other had %.2f points", float64(p99)/1e6, portion(s.gates[1], 21*sec))
				if p99 > 5500*us {
					t.Errorf("the 99th of 100 requests waited %d us", p99/us)
				}
				if got := portion(s.gates[1], 21*sec); got < 69 {
					t.Errorf("the saturating tenant had %.2f points of 70", got)
				}
			})
		}
	}
}

func TestNobodyGainsByBadManners(t *testing.T) {
	for _, tc := range []struct {
		name string
		bad  *proc
		// good is the least that the good tenant of 50 points has.
		good float64
	}{
		{name: "one that never drains is run beside", bad: &proc{kernel: 0}, good: 48},
		{name: "one that says nothing when it has drained is left out", bad: &proc{kernel: 500 * us, deaf: true}, good: 97},
		{name: "one that says that it used nothing gains a fifth at most", bad: &proc{kernel: 500 * us, lie: 1e-9}, good: 45},
		{name: "one that says that it used everything loses", bad: &proc{kernel: 500 * us, lie: 1000}, good: 49},
		{name: "one that rings all the time gains nothing", bad: &proc{kernel: 500 * us, noisy: true}, good: 49},
		{name: "one that wakes for nothing all the time gains nothing", bad: &proc{kernel: 50 * us, every: 3 * ms, work: 50 * us}, good: 49},
		{name: "one that wakes just when its slice was over gains nothing", bad: &proc{kernel: 50 * us, every: ms, work: 50 * us}, good: 49},
		{name: "kernels of two seconds run beside and are paid for", bad: &proc{kernel: 2 * sec}, good: 49},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSim(t, 5)
			bad := s.share("bad", 0, 5000, false, tc.bad)
			good := s.share("good", 0, 5000, false, &proc{kernel: 500 * us})
			s.run(40 * sec)
			got := portion(good, 40*sec)
			t.Logf("good %.2f, bad %.2f, overruns %d, %d steps a second", got, portion(bad, 40*sec), bad.overruns, s.steps/40)
			if got < tc.good {
				t.Errorf("the other tenant had %.2f points, want at least %.1f", got, tc.good)
			}
		})
	}
}

func TestACapHoldsForWhoSaysThatItUsedNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kernel arbiter.Time
		most   float64
	}{
		{name: "with short kernels it gains a fifth at most", kernel: 500 * us, most: 12},
		{name: "with kernels that overrun alone on the GPU too", kernel: 500 * ms, most: 13},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSim(t, 7)
			liar := s.share("liar", 0, 1000, true, &proc{kernel: tc.kernel, lie: 1e-9})
			s.run(60 * sec)
			if got := portion(liar, 60*sec); got > tc.most {
				t.Errorf("a cap of 10 points had %.2f", got)
			}
		})
	}
}

func TestTheDeadHoldNobodyUp(t *testing.T) {
	s := newSim(t, 6)
	dying := &proc{kernel: 500 * us}
	s.share("dying", 0, 5000, false, dying)
	other := s.share("other", 0, 5000, false, &proc{kernel: 500 * us})
	s.run(sec + 7*ms)
	dying.dead = true
	before := other.procs[0].got
	s.run(10 * sec)
	if got := 100 * float64(other.procs[0].got-before) / float64(10*sec); got < 99 {
		t.Errorf("beside a dead one a tenant had %.2f points", got)
	}
}

func TestWhoWasStoppedHasItsShareAgainAndNoMore(t *testing.T) {
	s := newSim(t, 10)
	stopped := s.share("stopped", 0, 5000, false, &proc{kernel: 500 * us}).procs[0]
	other := s.share("other", 0, 5000, false, &proc{kernel: 500 * us}).procs[0]
	s.run(sec)
	for !stopped.runs {
		s.run(tick)
	}
	stopped.stopped = true
	before := other.got
	s.run(4 * sec)
	within(t, "the other, beside a stopped one,", 100*float64(other.got-before)/float64(4*sec), 99, 1)
	stopped.stopped = false
	before = other.got
	s.run(sec)
	within(t, "the other, after it went on,", 100*float64(other.got-before)/float64(sec), 49, 3)
}

func TestAPersistentKernelAloneIsNotDisturbed(t *testing.T) {
	s := newSim(t, 7)
	g := s.share("persistent", 0, 1000, false, &proc{kernel: 0})
	s.run(10 * sec)
	within(t, "a kernel that never ends", portion(g, 10*sec), 100, 0.5)
	if g.overruns > 0 {
		t.Errorf("it overran %d times", g.overruns)
	}
	steps := s.steps
	s.run(10 * sec)
	if s.steps != steps {
		t.Errorf("with a tenant alone there were %d steps", s.steps-steps)
	}
}

func TestAChangeOfSharesHoldsWithinASecond(t *testing.T) {
	s := newSim(t, 8)
	a := s.share("a", 0, 2000, true, &proc{kernel: 500 * us})
	s.share("b", 0, 2000, false, &proc{kernel: 500 * us})
	s.run(5 * sec)
	within(t, "the cap of 20", portion(a, 5*sec), 20, 1)
	s.a.Change(s.now, a.id, 6000, true)
	s.next = s.now
	before := a.procs[0].got
	s.run(sec)
	within(t, "the cap of 60 in its first second", 100*float64(a.procs[0].got-before)/float64(sec), 60, 5)
	s.a.Change(s.now, a.id, 2000, false)
	s.next = s.now
	before = a.procs[0].got
	s.run(5 * sec)
	within(t, "a share like the other's", 100*float64(a.procs[0].got-before)/float64(5*sec), 50, 2)
}

func TestAShareThatGoesFreesItsGPU(t *testing.T) {
	s := newSim(t, 9)
	gone := s.share("gone", 0, 5000, false, &proc{kernel: 0})
	other := s.share("other", 0, 5000, false, &proc{kernel: 500 * us})
	s.run(100 * ms)
	gone.procs[0].dead = true
	s.a.Remove(s.now, gone.id)
	s.gates = s.gates[1:]
	s.next = s.now
	before := other.procs[0].got
	s.run(sec)
	if got := 100 * float64(other.procs[0].got-before) / float64(sec); got < 99 {
		t.Errorf("the other had %.2f points", got)
	}
}
