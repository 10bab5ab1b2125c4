// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"testing"
	"time"
	_ "time/tzdata" // The zones' rules, wherever the tests run.

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/internal/schedule"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func window(t *testing.T, name, start, end string, days ...string) schedule.Window {
	t.Helper()
	w, err := schedule.Parse(name, days, start, end)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestActive asks at moments that are written as UTC, so that it is clear which of two equal readings is meant.
func TestActive(t *testing.T) {
	utc := func(text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		at, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	night := window(t, "night", "22:00", "06:00")
	weekend := window(t, "weekend", "22:00", "06:00", "Fri", "Sat")
	noon := window(t, "noon", "11:00", "13:00")
	none := schedule.None
	type answer struct {
		active       int
		hidden       []int
		since, until string
		next         int
	}
	cases := []struct {
		name    string
		zone    string
		windows []schedule.Window
		now     string
		want    answer
	}{
		{
			name: "without windows nothing is ever open", zone: "UTC", now: "2026-11-30 12:00",
			want: answer{active: none, next: none},
		},
		{
			name: "by day the night is to come", zone: "UTC", windows: []schedule.Window{night}, now: "2026-11-30 12:00",
			want: answer{none, nil, "2026-11-30 06:00", "2026-11-30 22:00", 0},
		},
		{
			name: "a window is open at its start", zone: "UTC", windows: []schedule.Window{night}, now: "2026-11-30 22:00",
			want: answer{0, nil, "2026-11-30 22:00", "2026-12-01 06:00", none},
		},
		{
			name: "a window goes on after midnight", zone: "UTC", windows: []schedule.Window{night}, now: "2026-12-01 05:59",
			want: answer{0, nil, "2026-11-30 22:00", "2026-12-01 06:00", none},
		},
		{
			name: "a window is closed at its end", zone: "UTC", windows: []schedule.Window{night}, now: "2026-12-01 06:00",
			want: answer{none, nil, "2026-12-01 06:00", "2026-12-01 22:00", 0},
		},
		{
			name: "the zone's clocks count", zone: "Asia/Shanghai", windows: []schedule.Window{night}, now: "2026-11-30 15:00",
			want: answer{0, nil, "2026-11-30 14:00", "2026-11-30 22:00", none},
		},
		{
			name: "the morning belongs to the day before", zone: "UTC", windows: []schedule.Window{weekend}, now: "2026-11-29 05:00",
			want: answer{0, nil, "2026-11-28 22:00", "2026-11-29 06:00", none},
		},
		{
			name: "a day that is not listed has none", zone: "UTC", windows: []schedule.Window{weekend}, now: "2026-11-29 23:00",
			want: answer{none, nil, "2026-11-29 06:00", "2026-12-04 22:00", 0},
		},
		{
			name: "the first of two open windows counts, the other is named", zone: "UTC", windows: []schedule.Window{weekend, night}, now: "2026-11-28 23:00",
			want: answer{0, []int{1}, "2026-11-28 22:00", "2026-11-29 06:00", none},
		},
		{
			name: "a first window interrupts a later one", zone: "UTC", now: "2026-11-30 11:30",
			windows: []schedule.Window{noon, window(t, "day", "06:00", "22:00")},
			want:    answer{0, []int{1}, "2026-11-30 11:00", "2026-11-30 13:00", 1},
		},
		{
			name: "a later window does not interrupt the first", zone: "UTC", now: "2026-11-30 12:30",
			windows: []schedule.Window{window(t, "day", "06:00", "22:00"), noon},
			want:    answer{0, []int{1}, "2026-11-30 06:00", "2026-11-30 22:00", none},
		},
		{
			name: "windows that touch leave nothing between them", zone: "UTC", now: "2026-11-30 12:00",
			windows: []schedule.Window{night, window(t, "day", "06:00", "22:00")},
			want:    answer{1, nil, "2026-11-30 06:00", "2026-11-30 22:00", 0},
		},
		{
			name: "a window of a whole day every day never closes", zone: "Europe/Berlin", now: "2026-11-30 12:00",
			windows: []schedule.Window{window(t, "always", "08:00", "08:00")},
			want:    answer{active: 0, next: 0},
		},
		{
			name: "a whole day begins at its start", zone: "UTC", now: "2026-12-01 07:00",
			windows: []schedule.Window{window(t, "Monday", "08:00", "08:00", "Mon")},
			want:    answer{0, nil, "2026-11-30 08:00", "2026-12-01 08:00", none},
		},
		{
			name: "days in a row are one stretch", zone: "UTC", now: "2026-11-29 12:00",
			windows: []schedule.Window{window(t, "weekend", "00:00", "00:00", "Sat", "Sun")},
			want:    answer{0, nil, "2026-11-28 00:00", "2026-11-30 00:00", none},
		},
		{
			name: "a night in which clocks go forward is an hour shorter", zone: "Europe/Berlin", windows: []schedule.Window{night}, now: "2026-03-29 00:30",
			want: answer{0, nil, "2026-03-28 21:00", "2026-03-29 04:00", none},
		},
		{
			name: "a night in which they go back is an hour longer", zone: "Europe/Berlin", windows: []schedule.Window{night}, now: "2026-10-25 00:30",
			want: answer{0, nil, "2026-10-24 20:00", "2026-10-25 05:00", none},
		},
		{
			name: "a start that is left out is the change of the clocks", zone: "Europe/Berlin", now: "2026-03-29 01:10",
			windows: []schedule.Window{window(t, "early", "02:30", "05:00")},
			want:    answer{0, nil, "2026-03-29 01:00", "2026-03-29 03:00", none},
		},
		{
			name: "an end that is left out is the change of the clocks", zone: "Europe/Berlin", now: "2026-03-29 00:50",
			windows: []schedule.Window{window(t, "early", "01:30", "02:30")},
			want:    answer{0, nil, "2026-03-29 00:30", "2026-03-29 01:00", none},
		},
		{
			name: "a window that is left out altogether waits for its next day", zone: "Europe/Berlin", now: "2026-03-29 01:00",
			windows: []schedule.Window{window(t, "early", "02:15", "02:45", "Sun")},
			want:    answer{none, nil, "2026-03-22 01:45", "2026-04-05 00:15", 0},
		},
		{
			name: "a week before, the one after it is foretold", zone: "Europe/Berlin", now: "2026-03-22 01:45",
			windows: []schedule.Window{window(t, "early", "02:15", "02:45", "Sun")},
			want:    answer{none, nil, "2026-03-22 01:45", "2026-04-05 00:15", 0},
		},
		{
			name: "a start that comes twice is the first", zone: "Europe/Berlin", now: "2026-10-25 00:45",
			windows: []schedule.Window{window(t, "early", "02:30", "04:00")},
			want:    answer{0, nil, "2026-10-25 00:30", "2026-10-25 03:00", none},
		},
		{
			name: "an end that comes twice is the first", zone: "Europe/Berlin", now: "2026-10-25 01:15",
			windows: []schedule.Window{window(t, "early", "01:00", "02:30")},
			want:    answer{none, nil, "2026-10-25 00:30", "2026-10-26 00:00", 0},
		},
		{
			name: "a midnight that is left out is the change of the clocks", zone: "Africa/Cairo", now: "2026-04-23 23:00",
			windows: []schedule.Window{window(t, "Friday", "00:00", "00:00", "Fri")},
			want:    answer{0, nil, "2026-04-23 22:00", "2026-04-24 21:00", none},
		},
		{
			name: "a day that a zone left out has no window", zone: "Pacific/Apia", now: "2011-12-30 10:00",
			windows: []schedule.Window{window(t, "Friday", "00:00", "00:00", "Fri")},
			want:    answer{none, nil, "2011-12-24 10:00", "2012-01-05 10:00", 0},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := schedule.Active(tc.windows, zone(t, tc.zone), utc(tc.now))
			want := schedule.State{
				Active: tc.want.active, Hidden: tc.want.hidden,
				Since: utc(tc.want.since), Until: utc(tc.want.until), Next: tc.want.next,
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(time.Time.Equal)); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}
