// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	decide "github.com/sluice-gpu/sluice/internal/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	microsecond = decide.Time(1000)
	second      = decide.Time(1_000_000_000)
)

func TestRingsAreServedAsFarAsSlicesExplainThem(t *testing.T) {
	for _, tc := range []struct {
		name string
		// ring is the time between two rings, slice between two slices.
		ring, slice decide.Time
		processes   int
		// least and most are how many rings of a second may be served.
		least, most int
	}{
		{name: "two rings of each slice are", ring: 500 * microsecond, slice: 1000 * microsecond, processes: 1, least: 1990, most: 2010},
		{name: "rings without slices hardly are", ring: 100 * microsecond, slice: second, processes: 1, least: 20, most: 150},
		{name: "nor are those of ever so many slices", ring: 10 * microsecond, slice: 20 * microsecond, processes: 1, least: 1000, most: 3500},
		{name: "nor those of ever so many processes", ring: 10 * microsecond, slice: 20 * microsecond, processes: 1024, least: 1000, most: 5000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &seat{mask: maskMin, rings: ringsSlice, processes: tc.processes}
			served := 0
			for now := second; now < 2*second; now += tc.ring {
				if now%tc.slice < tc.ring {
					s.opened(now)
				}
				switch {
				case s.until == 0:
					if s.allow(now) {
						served++
					}
				case now >= s.until: // it is served once when it is heard again
					s.until = 0
					served++
				}
			}
			if served < tc.least || served > tc.most {
				t.Errorf("%d rings were served, want %d to %d", served, tc.least, tc.most)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	const wants, runs, drained = limits.PaceWants, limits.PaceRuns, limits.PaceDrained
	for _, tc := range []struct {
		name string
		list []limits.Pace
		want decide.Report
	}{
		{name: "nobody says nothing"},
		{name: "who runs in this slice", list: []limits.Pace{{Sequence: 5, Bits: runs, Launches: 3}}, want: decide.Report{Ran: true, Running: true, Launches: 3}},
		{name: "who runs since an earlier one", list: []limits.Pace{{Sequence: 4, Bits: runs, Launches: 3}}, want: decide.Report{Running: true, Launches: 3}},
		{name: "who is done", list: []limits.Pace{{Sequence: 5, Bits: drained}}, want: decide.Report{Ran: true}},
		{name: "who was done before", list: []limits.Pace{{Sequence: 4, Bits: drained}}},
		{name: "who waits", list: []limits.Pace{{Sequence: 4, Bits: drained | wants}}, want: decide.Report{Wants: true}},
		{name: "who is done and wants again", list: []limits.Pace{{Sequence: 5, Bits: drained | wants}}, want: decide.Report{Wants: true, Again: true, Ran: true}},
		{
			name: "how far is who is done and wants again", list: []limits.Pace{{Sequence: 5, Bits: drained | wants, Launches: 17}},
			want: decide.Report{Wants: true, Again: true, Ran: true, Waiting: 17},
		},
		{name: "who says that it runs and is done is done", list: []limits.Pace{{Sequence: 5, Bits: drained | runs, Launches: 9}}, want: decide.Report{Ran: true}},
		{
			name: "the furthest of several", list: []limits.Pace{{Sequence: 5, Bits: runs, Launches: 3}, {Sequence: 5, Bits: runs | wants, Launches: 7}},
			want: decide.Report{Wants: true, Ran: true, Running: true, Launches: 7},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, digest(limits.Paces{List: tc.list}, 5, false)); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}
