// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/internal/schedule"
)

func TestANodeIsToldWhenToGetReady(t *testing.T) {
	evening := time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)
	morning := evening.Add(8 * time.Hour)
	before := schedule.State{Active: schedule.None, Next: 0, Since: evening.Add(-16 * time.Hour), Until: evening}
	cases := []struct {
		name string
		lead time.Duration
		now  time.Time
		want schedule.NodeState
	}{
		{
			name: "long before the change there is nothing to do", lead: 30 * time.Minute, now: evening.Add(-2 * time.Hour),
			want: schedule.NodeState{State: before, Again: evening.Add(-30 * time.Minute)},
		},
		{
			name: "the node gets ready a lead before the change", lead: 30 * time.Minute, now: evening.Add(-30 * time.Minute),
			want: schedule.NodeState{State: before, Prepare: true, Again: evening},
		},
		{
			name: "without a lead it changes without getting ready", now: evening.Add(-1),
			want: schedule.NodeState{State: before, Again: evening},
		},
		{
			name: "a lead longer than the window begins with it", lead: 100 * time.Hour, now: evening,
			want: schedule.NodeState{
				State:   schedule.State{Active: 0, Next: schedule.None, Since: evening, Until: morning},
				Prepare: true, Again: morning,
			},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			night := window(t, "night", "22:00", "06:00")
			night.Lead = tc.lead
			s := schedule.Schedule{Windows: []schedule.Window{night}, Zone: time.UTC}
			if diff := cmp.Diff(tc.want, s.At("node-1", tc.now), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutAChangeThereIsNothingToGetReadyFor(t *testing.T) {
	s := schedule.Schedule{Zone: time.UTC, Jitter: time.Hour}
	got := s.At("node-1", time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC))
	want := schedule.NodeState{State: schedule.State{Active: schedule.None, Next: schedule.None}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// TestNodesChangeInTurn checks that each node changes at its own time, within the jitter, and stays as long as written.
func TestNodesChangeInTurn(t *testing.T) {
	const nodes, tenths = 1000, 10
	evening := time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)
	night := window(t, "night", "22:00", "06:00")
	night.Lead = 5 * time.Minute
	s := schedule.Schedule{Windows: []schedule.Window{night}, Zone: time.UTC, Jitter: 10 * time.Minute}
	var spread [tenths]int
	for i := range nodes {
		node := fmt.Sprintf("gpu-node-%03d.example.com", i)
		lag := schedule.Lag(node, s.Jitter)
		if lag < 0 || lag >= s.Jitter || lag != schedule.Lag(node, s.Jitter) {
			t.Fatalf("%s lags %s", node, lag)
		}
		spread[tenths*lag/s.Jitter]++
		before, after := s.At(node, evening.Add(lag-1)), s.At(node, evening.Add(lag))
		if before.Active != schedule.None || !before.Until.Equal(evening.Add(lag)) || !before.Prepare {
			t.Errorf("%s, just before its change: %+v", node, before)
		}
		if after.Active != 0 || !after.Since.Equal(evening.Add(lag)) || after.Until.Sub(after.Since) != 8*time.Hour || after.Prepare {
			t.Errorf("%s, just after its change: %+v", node, after)
		}
	}
	for tenth, n := range spread {
		if n < nodes/tenths*6/10 || n > nodes/tenths*14/10 {
			t.Errorf("%d of %d nodes change in tenth %d of the jitter", n, nodes, tenth)
		}
	}
	if lag := schedule.Lag("node-1", 0); lag != 0 {
		t.Errorf("without a jitter a node lags %s", lag)
	}
}
