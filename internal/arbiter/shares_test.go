// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"testing"

	"github.com/sluice-gpu/sluice/internal/arbiter"
)

// portion is what a share had of a time, in points.
func portion(g *simGate, of arbiter.Time) float64 {
	var got arbiter.Time
	for _, p := range g.procs {
		got += p.got
	}
	return 100 * float64(got) / float64(of)
}

func within(t *testing.T, what string, got, want, points float64) {
	t.Helper()
	if got < want-points || got > want+points {
		t.Errorf("%s had %.2f points, want %.2f within %.1f", what, got, want, points)
	}
}

func TestACapIsNeverPassed(t *testing.T) {
	for _, kernel := range []arbiter.Time{100 * us, 500 * us, 20 * ms} {
		for _, share := range []uint32{10, 25, 30, 50, 60, 75} {
			for _, others := range []int{0, 1, 7} {
				t.Run(fmt.Sprintf("%d points of %d ns beside %d", share, kernel, others), func(t *testing.T) {
					s := newSim(t, 1)
					g := s.share("capped", 0, share*100, true, &proc{kernel: kernel})
					for i := range others {
						rest := (100 - share) * 100 / uint32(others)
						s.share(fmt.Sprintf("other %d", i), 0, rest, false, &proc{kernel: 500 * us})
					}
					s.run(20 * sec)
					got := portion(g, 20*sec)
					t.Logf("%.2f points, GPU busy %.2f, %d steps a second", got, 100*float64(s.busy[0])/float64(20*sec), s.steps/20)
					within(t, "a capped tenant", got, float64(share), 1)
				})
			}
		}
	}
}

func TestACapIsAllOfWhatWasAskedWhereOthersDoNotUseTheirs(t *testing.T) {
	s := newSim(t, 1)
	capped := s.share("capped", 0, 60_00, true, &proc{kernel: 500 * us})
	other := s.share("other", 0, 60_00, true, &proc{kernel: 500 * us, to: 10 * sec})
	s.share("absent", 0, 100_00, false)
	s.run(10 * sec)
	together := portion(capped, 10*sec)
	within(t, "one of two that ask for more than there is", together, 50, 2)
	within(t, "the other", portion(other, 10*sec), 50, 2)
	s.run(10 * sec)
	within(t, "the one that is left", 2*portion(capped, 20*sec)-together, 60, 1)
}
