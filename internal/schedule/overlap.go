// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"time"
)

const minutesOfWeek = 7 * minutesOfDay

// Overlap is a pair of windows that are open at once in an ordinary week.
type Overlap struct {
	// First and Second are their indexes; First is the one that counts.
	First, Second int
	// Day and At are when they begin to overlap, for the first time in a week that begins on Sunday.
	Day time.Weekday
	At  Clock
}

// Describe is a sentence for people about an overlap of the given windows.
func (o Overlap) Describe(windows []Window) string {
	first := windows[o.First].Name
	return fmt.Sprintf("%s and %s overlap, from %s %s on: then %s counts, because it comes first",
		first, windows[o.Second].Name, abbreviation(o.Day), o.At, first)
}

// Overlaps are all pairs of windows that overlap by the clock, in the order of the list.
func Overlaps(windows []Window) []Overlap {
	weeks := make([][]bool, len(windows))
	for i, w := range windows {
		weeks[i] = w.week()
	}
	var overlaps []Overlap
	for i := range windows {
		for j := i + 1; j < len(windows); j++ {
			if minute := firstBoth(weeks[i], weeks[j]); minute >= 0 {
				overlaps = append(overlaps, Overlap{
					First: i, Second: j,
					Day: time.Weekday(minute / minutesOfDay), At: Clock(minute % minutesOfDay),
				})
			}
		}
	}
	return overlaps
}

// week says for each minute of a week whether the window is open.
func (w Window) week() []bool {
	open := make([]bool, minutesOfWeek)
	for day := time.Sunday; day <= time.Saturday; day++ {
		if !w.begins(day) {
			continue
		}
		start := int(day)*minutesOfDay + int(w.Start)
		for minute := start; minute < start+w.minutes(); minute++ {
			open[minute%minutesOfWeek] = true
		}
	}
	return open
}

// firstBoth is the first minute at which both begin to be open; -1 where they never are.
func firstBoth(a, b []bool) int {
	found := -1
	for minute := range a {
		if !a[minute] || !b[minute] {
			continue
		}
		before := (minute + minutesOfWeek - 1) % minutesOfWeek
		if !a[before] || !b[before] {
			return minute
		}
		if found < 0 {
			found = minute
		}
	}
	return found
}
