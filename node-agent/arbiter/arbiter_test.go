// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	decide "github.com/sluice-gpu/sluice/internal/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	gateNone   = 0
	gateClosed = 1
	gateOpen   = 2
)

// portions are the parts of their sum.
func portions(all ...had) (parts []float64) {
	var sum time.Duration
	for _, h := range all {
		sum += h.ran
	}
	for _, h := range all {
		parts = append(parts, 100*float64(h.ran)/float64(sum))
	}
	return parts
}

func wantAbout(t *testing.T, got []float64, points float64, want ...float64) {
	t.Helper()
	for i := range want {
		if got[i] < want[i]-points || got[i] > want[i]+points {
			t.Errorf("share %d had %.1f points, want %.0f within %.0f", i, got[i], want[i], points)
		}
	}
}

func TestTenantsTakeTurns(t *testing.T) {
	r := newRig(t)
	a, _ := r.arbitrate()
	p := r.tenant(r.share("a", 25), r.share("b", 75))
	pass(3 * time.Second)
	all := p.end()
	// How exact turns are is tried in simulated time; here a busy machine takes its part.
	wantAbout(t, portions(all...), 8, 25, 75)
	if total := all[0].ran + all[1].ran; total < 1500*time.Millisecond || total > 3200*time.Millisecond {
		t.Errorf("in 3 s they ran %v: they did not run one after another, or not all the time", total)
	}
	if s := standing(t, a, "a"); s.Slices < 5 || s.Charged < decide.Time(200*time.Millisecond) {
		t.Errorf("a share had %+v", s)
	}
}

func TestACapHoldsAlone(t *testing.T) {
	r := newRig(t)
	r.arbitrate()
	p := r.tenant("--drain", "100", r.share("a", 30, func(s *limits.Share) { s.Policy = limits.PolicyCap }))
	pass(3 * time.Second)
	if got := p.end()[0].ran.Seconds() / 3 * 100; got < 15 || got > 32 {
		t.Errorf("a cap of 30 points had %.1f", got)
	}
}

func TestATenantAloneIsLeftAlone(t *testing.T) {
	r := newRig(t)
	a, _ := r.arbitrate()
	r.tenant(r.share("a", 10))
	r.eventually("open", func() bool { return standing(t, a, "a").State == decide.Opened })
	pass(500 * time.Millisecond)
	if s := standing(t, a, "a"); s.Slices != 1 {
		t.Errorf("it had %d slices", s.Slices)
	}
}

func TestWhoComesLaterIsFoundAndServed(t *testing.T) {
	r := newRig(t)
	a, _ := r.arbitrate()
	r.tenant(r.share("a", 50))
	r.eventually("open", func() bool { return standing(t, a, "a").State == decide.Opened })
	// As an agent that is not active makes one.
	dir := r.share("b", 50)
	r.eventually("found", func() bool { return standing(t, a, "b").ClaimUID == "b" })
	p := r.tenant("--work", "1000", "--rest", "20000", dir)
	pass(time.Second)
	if got := p.end()[0]; got.slices < 5 || got.longest > 500*time.Millisecond {
		t.Errorf("it had %d slices and waited %v", got.slices, got.longest)
	}
}

func TestAChangeReachesARunningShare(t *testing.T) {
	r := newRig(t)
	a, _ := r.arbitrate()
	dir := r.share("a", 20)
	p := r.tenant("--drain", "100", dir)
	r.eventually("open", func() bool { return standing(t, a, "a").State == decide.Opened })
	if err := r.door.SetPolicy("a", 0, limits.PolicyCap); err != nil {
		t.Fatal(err)
	}
	a.Refresh()
	r.eventually("capped", func() bool { return standing(t, a, "a").Slices > 3 })
	p.end()
}

func TestAnEndLeavesGatesToTheirProcesses(t *testing.T) {
	r := newRig(t)
	dir, idle := r.share("a", 50), r.share("b", 50)
	_, stop := r.arbitrate()
	if got := r.state(idle); got != gateClosed {
		t.Errorf("at the beginning the gate is %d, want it shut", got)
	}
	r.tenant(dir)
	r.eventually("open", func() bool { return r.state(dir) == gateOpen })
	stop()
	for _, d := range []string{dir, idle} {
		if got := r.state(d); got != gateNone {
			t.Errorf("at the end the gate is %d, want none", got)
		}
	}
	a, _ := r.arbitrate()
	r.eventually("open again", func() bool { return standing(t, a, "a").State == decide.Opened })
}

func TestTheKilledAndTheStoppedHoldNobodyUp(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(signal.String(), func(t *testing.T) {
			r := newRig(t)
			a, _ := r.arbitrate()
			bad := r.tenant(r.share("bad", 50))
			good := r.share("good", 50)
			p := r.tenant(good)
			r.eventually("both ran", func() bool {
				return standing(t, a, "bad").Slices > 3 && standing(t, a, "good").Slices > 3
			})
			if err := bad.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			pass(200 * time.Millisecond)
			before := standing(t, a, "good").Charged
			pass(time.Second)
			got := standing(t, a, "good")
			p.end()
			// What is open is not charged yet.
			if got.State != decide.Opened && got.Charged-before < decide.Time(400*time.Millisecond) {
				t.Errorf("the other had %v in a second", time.Duration(got.Charged-before))
			}
			r.eventually("the bad one is not waited for", func() bool {
				s := standing(t, a, "bad")
				return s.State != decide.Opened && s.State != decide.Draining
			})
		})
	}
}

func TestWhatNeverDrainsIsRunBeside(t *testing.T) {
	r := newRig(t)
	a, _ := r.arbitrate()
	r.tenant("--deaf", r.share("deaf", 50))
	r.eventually("it runs", func() bool { return standing(t, a, "deaf").State == decide.Opened })
	p := r.tenant(r.share("good", 50))
	r.eventually("an overrun", func() bool { return standing(t, a, "deaf").Overruns == 1 })
	r.eventually("the other runs", func() bool { return standing(t, a, "good").State == decide.Opened })
	p.end()
}

func TestABellThatRingsAllTheTimeIsNotHeard(t *testing.T) {
	r := newRig(t)
	a, _ := r.arbitrate()
	dir := r.share("noisy", 50)
	r.eventually("found", func() bool { return standing(t, a, "noisy").ClaimUID != "" })
	bell, err := os.OpenFile(filepath.Join(dir, "bell"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bell.Close() })
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = bell.Write([]byte{0}) // full is as good
			}
		}
	}()
	p := r.tenant("--work", "1000", "--rest", "10000", r.share("good", 50))
	pass(time.Second)
	close(stop)
	if got := p.end()[0]; got.slices < 5 {
		t.Errorf("beside the noise there were %d slices", got.slices)
	}
	if rings := a.Rings(); rings > 500 {
		t.Errorf("%d rings were served in a second", rings)
	}
}

func TestAShareThatIsRemovedIsForgotten(t *testing.T) {
	r := newRig(t)
	a, _ := r.arbitrate()
	r.share("a", 50)
	r.eventually("found", func() bool { return len(a.Snapshot()) == 1 })
	if err := r.door.Remove("a"); err != nil {
		t.Fatal(err)
	}
	r.eventually("forgotten", func() bool { return len(a.Snapshot()) == 0 })
	r.share("a", 50)
	r.eventually("found again", func() bool { return len(a.Snapshot()) == 1 })
}

func TestSharesThatAreNotHeldTakeNoPart(t *testing.T) {
	r := newRig(t)
	r.share("counted", 50, func(s *limits.Share) { s.Enforce = 0 })
	r.share("memory", 50, func(s *limits.Share) { s.Enforce = limits.EnforceMemory })
	a, _ := r.arbitrate()
	if got := a.Snapshot(); len(got) != 0 {
		t.Errorf("there are %+v", got)
	}
}
