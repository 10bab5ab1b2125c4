// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"time"
)

// None is the index that stands for no window.
const None = -1

// State is which window is open at a moment.
type State struct {
	// Active is the index of the window that counts, None where none is open. Of windows that are open at once it is the
	// first in the list.
	Active int
	// Hidden are the others that are open.
	Hidden []int
	// Since is when Active began to count, and Until when it ceases to; zero: it always did, or always will.
	Since, Until time.Time
	// Next is what counts from Until on.
	Next int
}

// spans are how many days around a moment are looked at for changes, one after the other: nearly always there is one
// within a day. A change that only comes about once a week can fall out where clocks go forward.
func spans() []int { return []int{2, 9, 23} }

// Active says which window counts at a moment.
func Active(windows []Window, zone *time.Location, now time.Time) State {
	var state State
	for _, days := range spans() {
		line := newTimeline(windows, zone, now, days)
		state = line.state(now)
		if !state.Since.IsZero() && !state.Until.IsZero() {
			break
		}
	}
	return state
}

// occurrence is a window that is open for once.
type occurrence struct {
	index      int
	start, end time.Time
}

// timeline is what is open when, between two moments.
type timeline struct {
	occurrences []occurrence
	// changes are the moments at which something opens or closes, the two ends among them.
	changes []time.Time
}

// newTimeline looks some days back and ahead. It begins a day late, because what began on the day before its first is not
// known.
func newTimeline(windows []Window, zone *time.Location, now time.Time, days int) timeline {
	year, month, day := now.In(zone).Date()
	date := func(days int) time.Time { return time.Date(year, month, day+days, 0, 0, 0, 0, time.UTC) }
	from, to := moment(date(1-days), zone), moment(date(days), zone)
	line := timeline{changes: []time.Time{from, to}}
	for d := -days; d <= days; d++ {
		for i, w := range windows {
			if !w.begins(date(d).Weekday()) {
				continue
			}
			start, end := w.on(date(d), zone)
			if !start.Before(end) {
				continue
			}
			line.occurrences = append(line.occurrences, occurrence{i, start, end})
			for _, t := range []time.Time{start, end} {
				if t.After(from) && t.Before(to) {
					line.changes = append(line.changes, t)
				}
			}
		}
	}
	slices.SortFunc(line.changes, time.Time.Compare)
	line.changes = slices.CompactFunc(line.changes, time.Time.Equal)
	return line
}

// open are the windows that are open at a moment, in the order of the list.
func (l *timeline) open(now time.Time) []int {
	var open []int
	for _, o := range l.occurrences {
		if !now.Before(o.start) && now.Before(o.end) {
			open = append(open, o.index)
		}
	}
	slices.Sort(open)
	return slices.Compact(open)
}

// active is the window that counts at a moment.
func (l *timeline) active(now time.Time) int {
	if open := l.open(now); len(open) > 0 {
		return open[0]
	}
	return None
}

func (l *timeline) state(now time.Time) State {
	s := State{Active: None, Next: None}
	if open := l.open(now); len(open) > 0 {
		s.Active, s.Hidden = open[0], open[1:]
	}
	s.Next = s.Active
	// What counts at a change counts until the next one.
	for _, change := range slices.Backward(l.changes[:len(l.changes)-1]) {
		if change.After(now) {
			continue
		}
		if l.active(change) != s.Active {
			break
		}
		s.Since = change
	}
	for _, change := range l.changes[:len(l.changes)-1] {
		if index := l.active(change); change.After(now) && index != s.Active {
			s.Until, s.Next = change, index
			break
		}
	}
	if s.Since.Equal(l.changes[0]) {
		s.Since = time.Time{}
	}
	return s
}
