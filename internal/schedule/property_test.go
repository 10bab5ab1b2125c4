// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/internal/schedule"
)

// zones have clocks that never change, that change by an hour, by half an hour, by two, at midnight, and backwards in
// summer; two left out a day.
func zones() map[string]int {
	return map[string]int{
		"UTC": 2025, "Asia/Shanghai": 2025, "Asia/Kathmandu": 2025, "Europe/Berlin": 2025, "America/New_York": 2025,
		"America/St_Johns": 2025, "Australia/Lord_Howe": 2025, "Antarctica/Troll": 2025, "Africa/Cairo": 2025,
		"America/Santiago": 2025, "Africa/Casablanca": 2025, "Europe/Dublin": 2025, "Pacific/Apia": 2011,
		"Pacific/Kwajalein": 1993,
	}
}

// lists are some lists of windows, and many random ones.
func lists(t *testing.T) map[string][]schedule.Window {
	t.Helper()
	lists := map[string][]schedule.Window{
		"day and night": {window(t, "night", "22:00", "06:00"), window(t, "day", "06:00", "22:00")},
		"small hours":   {window(t, "a", "02:15", "02:45"), window(t, "b", "01:30", "02:30"), window(t, "c", "23:30", "00:30", "Sat")},
	}
	random := rand.New(rand.NewPCG(6, 1)) //nolint:gosec // A seeded generator makes the test repeatable.
	for _, name := range []string{"random 1", "random 2", "random 3"} {
		var windows []schedule.Window
		for range 1 + random.IntN(4) {
			w := schedule.Window{Start: schedule.Clock(15 * random.IntN(96)), End: schedule.Clock(15 * random.IntN(96))}
			for day := time.Sunday; day <= time.Saturday; day++ {
				if random.IntN(2) == 0 {
					w.Days = append(w.Days, day)
				}
			}
			windows = append(windows, w)
		}
		lists[name] = windows
	}
	return lists
}

// wall says what is open by another way than the code under test: it goes through two years minute by minute, and notes
// the latest reading that the clocks have shown.
type wall struct {
	zone   *time.Location
	latest time.Time
}

func (w *wall) see(now time.Time) {
	local := now.In(w.zone)
	reading := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
	if reading.After(w.latest) {
		w.latest = reading
	}
}

// active is the first window that is open by the latest reading.
func (w *wall) active(windows []schedule.Window) int {
	minute := w.latest.Hour()*60 + w.latest.Minute()
	today := w.latest.Weekday()
	yesterday := (today + 6) % 7
	for i, x := range windows {
		start, end := int(x.Start), int(x.End)
		overnight := end <= start
		switch {
		case on(x, today) && minute >= start && (overnight || minute < end):
			return i
		case on(x, yesterday) && overnight && minute < end:
			return i
		}
	}
	return schedule.None
}

func on(w schedule.Window, day time.Weekday) bool {
	return len(w.Days) == 0 || slices.Contains(w.Days, day)
}

// TestTwoYears goes through two years of each zone in two ways: minute by minute with clocks on a wall, and from change to
// change. At each moment both say the same, each answer ends where the next begins, and the same is said in between.
func TestTwoYears(t *testing.T) {
	t.Parallel()
	for name, year := range zones() {
		for list, windows := range lists(t) {
			t.Run(name+", "+list, func(t *testing.T) {
				t.Parallel()
				c := &walk{t: t, zone: zone(t, name), windows: windows}
				c.begin = time.Date(year, 1, 10, 0, 0, 0, 0, time.UTC)
				c.through(c.begin.AddDate(2, 0, 0))
			})
		}
	}
}

type walk struct {
	t       *testing.T
	zone    *time.Location
	windows []schedule.Window
	begin   time.Time
}

func (c *walk) through(end time.Time) {
	clocks := &wall{zone: c.zone}
	for now := c.begin.AddDate(0, 0, -3); now.Before(c.begin); now = now.Add(time.Minute) {
		clocks.see(now)
	}
	state := schedule.Active(c.windows, c.zone, c.begin)
	for now := c.begin; now.Before(end); now = now.Add(time.Minute) {
		clocks.see(now)
		if !state.Until.IsZero() && !now.Before(state.Until) {
			state = c.next(state, now)
		}
		if want := clocks.active(c.windows); state.Active != want {
			c.t.Fatalf("%s: window %d counts, want %d; %+v", now.In(c.zone), state.Active, want, state)
		}
	}
}

// next is the state after a change, which must come at the minute that was foretold.
func (c *walk) next(before schedule.State, now time.Time) schedule.State {
	if !now.Equal(before.Until) {
		c.t.Fatalf("%s is no full minute", before.Until)
	}
	after := schedule.Active(c.windows, c.zone, now)
	switch {
	case after.Active != before.Next || after.Active == before.Active:
		c.t.Fatalf("%s: %+v is followed by %+v", now.In(c.zone), before, after)
	case !after.Since.Equal(now):
		c.t.Fatalf("%s: %+v began before the change", now.In(c.zone), after)
	case !after.Until.IsZero() && !after.Until.After(now):
		c.t.Fatalf("%s: %+v ends before it begins", now.In(c.zone), after)
	}
	// Whoever asks a moment earlier or at the end is told the same: the answer depends on the moment alone.
	last := schedule.Active(c.windows, c.zone, now.Add(-1))
	if last.Active != before.Active || !last.Until.Equal(now) || !last.Since.Equal(before.Since) && !before.Since.IsZero() {
		c.t.Fatalf("%s: %+v ends as %+v", now.In(c.zone), before, last)
	}
	return after
}
