// SPDX-License-Identifier: Apache-2.0

// Package schedule decides which window of a pool's schedules is open. Its answers depend on the moment alone, so that a
// change that was missed is made up for by asking again.
//
// Windows are written in the time that clocks on the wall show in one zone. A time of day begins at the first moment at
// which they show it or a later one. So where clocks go forward, a time that is left out begins with the one after the
// gap, and a window that lies in the gap does not take place; where they go back, a time that comes twice begins with the
// first. Windows that touch each other by the clock touch each other in fact, and each takes place at most once a day.
package schedule

import (
	"fmt"
	"slices"
	"time"
)

// minutesOfDay is how many minutes clocks show in a day.
const minutesOfDay = 24 * 60

// Clock is a time of day in minutes since midnight.
type Clock int

// String is HH:MM.
func (c Clock) String() string { return fmt.Sprintf("%02d:%02d", int(c)/60, int(c)%60) }

// ParseClock reads HH:MM, 00:00 to 23:59.
func ParseClock(text string) (Clock, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fmt.Errorf("%q is no time of day: write 00:00 to 23:59", text)
	}
	return Clock(t.Hour()*60 + t.Minute()), nil
}

// ParseDay reads Mon, Tue, Wed, Thu, Fri, Sat or Sun.
func ParseDay(text string) (time.Weekday, error) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if abbreviation(day) == text {
			return day, nil
		}
	}
	return 0, fmt.Errorf("%q is no day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun", text)
}

func abbreviation(day time.Weekday) string { return day.String()[:3] }

// Window is a time that comes again every week.
type Window struct {
	// Name is how people call it.
	Name string
	// Days are those on which it begins; none: every day.
	Days []time.Weekday
	// Start is when it begins. End is when it ends: the same day where it is later than Start, else the day after.
	Start, End Clock
	// Lead is how long before it begins a GPU gets ready for it, and before it ends where no other window follows.
	Lead time.Duration
}

// Parse reads a window as users write it.
func Parse(name string, days []string, start, end string) (Window, error) {
	w := Window{Name: name}
	for _, text := range days {
		day, err := ParseDay(text)
		if err != nil {
			return Window{}, fmt.Errorf("reading the days of %s: %w", name, err)
		}
		w.Days = append(w.Days, day)
	}
	var err error
	if w.Start, err = ParseClock(start); err != nil {
		return Window{}, fmt.Errorf("reading the start of %s: %w", name, err)
	}
	if w.End, err = ParseClock(end); err != nil {
		return Window{}, fmt.Errorf("reading the end of %s: %w", name, err)
	}
	return w, nil
}

// begins says whether the window begins on such a day.
func (w Window) begins(day time.Weekday) bool {
	return len(w.Days) == 0 || slices.Contains(w.Days, day)
}

// minutes is how long the window lasts by the clock.
func (w Window) minutes() int {
	if w.End > w.Start {
		return int(w.End - w.Start)
	}
	return int(w.End-w.Start) + minutesOfDay
}

// on is when the window that begins on a date begins and ends. The date is a midnight in UTC and stands for no moment.
func (w Window) on(date time.Time, zone *time.Location) (start, end time.Time) {
	from := date.Add(time.Duration(w.Start) * time.Minute)
	return moment(from, zone), moment(from.Add(time.Duration(w.minutes())*time.Minute), zone)
}

// mostAhead is more than clocks anywhere are ahead of UTC.
const mostAhead = 26 * time.Hour

// moment is the first one at which the clocks of a zone show the given reading, written as a time in UTC, or a later one.
func moment(reading time.Time, zone *time.Location) time.Time {
	from := reading.Add(-mostAhead).In(zone)
	for {
		_, offset := from.Zone()
		_, change := from.ZoneBounds()
		at := reading.Add(-time.Duration(offset) * time.Second).In(zone)
		switch {
		case at.Before(from):
			// The reading was left out when the clocks changed.
			return from
		case change.IsZero() || at.Before(change):
			return at
		default:
			from = change
		}
	}
}
