// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/internal/schedule"
)

func TestParse(t *testing.T) {
	cases := []struct {
		name       string
		days       []string
		start, end string
		want       schedule.Window
		problem    string
	}{
		{
			name: "days, start and end", days: []string{"Mon", "Sun"}, start: "22:00", end: "06:05",
			want: schedule.Window{Name: "w", Days: []time.Weekday{time.Monday, time.Sunday}, Start: 1320, End: 365},
		},
		{name: "no days are every day", start: "00:00", end: "23:59", want: schedule.Window{Name: "w", End: 1439}},
		{
			name: "a day in full is refused", days: []string{"Monday"}, start: "22:00", end: "06:00",
			problem: `reading the days of w: "Monday" is no day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun`,
		},
		{
			name: "an hour that does not exist is refused", start: "24:00", end: "06:00",
			problem: `reading the start of w: "24:00" is no time of day: write 00:00 to 23:59`,
		},
		{
			name: "an hour of one digit is refused", start: "22:00", end: "6:00",
			problem: `reading the end of w: "6:00" is no time of day: write 00:00 to 23:59`,
		},
		{
			name: "seconds are refused", start: "22:00:00", end: "06:00",
			problem: `reading the start of w: "22:00:00" is no time of day: write 00:00 to 23:59`,
		},
		{
			name: "nothing is refused", end: "06:00",
			problem: `reading the start of w: "" is no time of day: write 00:00 to 23:59`,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := schedule.Parse("w", tc.days, tc.start, tc.end)
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if diff := cmp.Diff(tc.problem, problem); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("window (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverlaps(t *testing.T) {
	night := window(t, "night", "22:00", "06:00")
	day := window(t, "day", "06:00", "22:00")
	weekend := window(t, "weekend", "00:00", "00:00", "Sat", "Sun")
	cases := []struct {
		name    string
		windows []schedule.Window
		want    []string
	}{
		{name: "windows that touch do not overlap", windows: []schedule.Window{night, day}},
		{
			name: "each pair is named", windows: []schedule.Window{weekend, night, day},
			want: []string{
				"weekend and night overlap, from Sun 22:00 on: then weekend counts, because it comes first",
				"weekend and day overlap, from Sun 06:00 on: then weekend counts, because it comes first",
			},
		},
		{
			name:    "the morning after a listed day overlaps too",
			windows: []schedule.Window{window(t, "early", "05:00", "07:00", "Tue"), window(t, "Monday night", "22:00", "06:00", "Mon")},
			want:    []string{"early and Monday night overlap, from Tue 05:00 on: then early counts, because it comes first"},
		},
		{
			name:    "the night to Sunday crosses the week's end",
			windows: []schedule.Window{window(t, "Saturday night", "22:00", "06:00", "Sat"), window(t, "Sunday", "05:00", "08:00", "Sun")},
			want:    []string{"Saturday night and Sunday overlap, from Sun 05:00 on: then Saturday night counts, because it comes first"},
		},
		{
			name:    "two that never close overlap from the week's beginning",
			windows: []schedule.Window{window(t, "a", "00:00", "00:00"), window(t, "b", "01:00", "01:00")},
			want:    []string{"a and b overlap, from Sun 00:00 on: then a counts, because it comes first"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, o := range schedule.Overlaps(tc.windows) {
				got = append(got, o.Describe(tc.windows))
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("overlaps (-want +got):\n%s", diff)
			}
		})
	}
}
