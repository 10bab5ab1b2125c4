// SPDX-License-Identifier: Apache-2.0

// Package timetable says what a pool is at a moment: its spec, or its spec with the override of the schedule that counts.
package timetable

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/schedule"
)

// Timetable is a pool with its schedules.
type Timetable struct {
	pool *v1alpha1.GPUPool
	// variants are the pool as each schedule makes it.
	variants []*v1alpha1.GPUPool
	schedule schedule.Schedule
	conflict Conflict
}

// Conflict says which schedules are not followed as they are written.
type Conflict struct {
	// Reason is that of the pool's condition; "" where every schedule is followed.
	Reason string
	// Message says which schedules, and what counts instead.
	Message string
}

// Of reads a pool's schedules. Jitter is the time over which its nodes change one after the other. A schedule that cannot
// be followed is left out; where the time zone is unknown, all are.
func Of(pool *v1alpha1.GPUPool, jitter time.Duration) Timetable {
	t := Timetable{pool: pool, schedule: schedule.Schedule{Zone: time.UTC, Jitter: jitter}}
	if len(pool.Spec.Schedules) == 0 {
		return t
	}
	zone, err := time.LoadLocation(pool.Spec.TimeZone)
	if err != nil || pool.Spec.TimeZone == "" || pool.Spec.TimeZone == "Local" {
		t.conflict = Conflict{v1alpha1.ReasonInvalidTimeZone, fmt.Sprintf(
			"timeZone %q is not known, so no schedule comes into force: write a name of the IANA data base, such as Europe/Berlin, or UTC", pool.Spec.TimeZone)}
		return t
	}
	t.schedule.Zone = zone
	var invalid []string
	for _, s := range pool.Spec.Schedules {
		window, variant, err := read(pool, s)
		if err != nil {
			invalid = append(invalid, fmt.Sprintf("schedule %s is not followed: %v", s.Name, err))
			continue
		}
		t.schedule.Windows = append(t.schedule.Windows, window)
		t.variants = append(t.variants, variant)
	}
	t.conflict = conflict(t.schedule.Windows, invalid)
	return t
}

func read(pool *v1alpha1.GPUPool, s v1alpha1.Schedule) (schedule.Window, *v1alpha1.GPUPool, error) {
	days := make([]string, len(s.Days))
	for i, day := range s.Days {
		days[i] = string(day)
	}
	window, err := schedule.Parse(s.Name, days, s.Start, s.End)
	if err != nil {
		return schedule.Window{}, nil, fmt.Errorf("reading its times: %w", err)
	}
	window.Lead = time.Duration(ptr.Deref(s.LeadSeconds, 0)) * time.Second
	variant, err := assign.Override(pool, s.Override)
	if err != nil {
		return schedule.Window{}, nil, fmt.Errorf("its override makes no sense with spec: %w", err)
	}
	return window, variant, nil
}

func conflict(windows []schedule.Window, invalid []string) Conflict {
	sentences := invalid
	for _, overlap := range schedule.Overlaps(windows) {
		sentences = append(sentences, overlap.Describe(windows))
	}
	switch {
	case len(sentences) == 0:
		return Conflict{}
	case len(invalid) > 0:
		return Conflict{v1alpha1.ReasonInvalidOverride, strings.Join(sentences, "; ")}
	default:
		return Conflict{v1alpha1.ReasonSchedulesOverlap, strings.Join(sentences, "; ")}
	}
}

// Conflict says which schedules are not followed as they are written.
func (t Timetable) Conflict() Conflict { return t.conflict }

// Moment is what a pool is at a moment on a node, and what it is to be next.
type Moment struct {
	// Now is the pool as it is.
	Now *v1alpha1.GPUPool
	// Next is the pool as it is to be from NotBefore on, where that is so near that GPUs have to get ready for it; else nil.
	Next      *v1alpha1.GPUPool
	NotBefore time.Time
	// Again is when the answer will be another one; zero: never.
	Again time.Time
}

// At says what the pool is on a node. Every node lags behind the clock by its share of the jitter.
func (t Timetable) At(node string, now time.Time) Moment {
	if len(t.variants) == 0 {
		return Moment{Now: t.pool}
	}
	state := t.schedule.At(node, now)
	m := Moment{Now: t.variant(state.Active), Again: state.Again}
	if state.Prepare {
		m.Next, m.NotBefore = t.variant(state.Next), state.Until
	}
	return m
}

// variant is the pool while a window counts.
func (t Timetable) variant(window int) *v1alpha1.GPUPool {
	if window == schedule.None {
		return t.pool
	}
	return t.variants[window]
}

// Variants are the pool as it is written and as each schedule makes it.
func (t Timetable) Variants() []*v1alpha1.GPUPool {
	return append([]*v1alpha1.GPUPool{t.pool}, t.variants...)
}

// Status says which schedule counts by the clock, whatever single nodes lag behind, and when the next one does.
func (t Timetable) Status(now time.Time) (status v1alpha1.PoolSchedule, again time.Time) {
	if len(t.variants) == 0 {
		return v1alpha1.PoolSchedule{}, time.Time{}
	}
	state := schedule.Active(t.schedule.Windows, t.schedule.Zone, now)
	status = v1alpha1.PoolSchedule{Active: t.name(state.Active)}
	if !state.Until.IsZero() {
		status.Next = t.name(state.Next)
		status.NextChange = ptr.To(metav1.NewTime(state.Until))
	}
	return status, state.Until
}

func (t Timetable) name(window int) string {
	if window == schedule.None {
		return ""
	}
	return t.schedule.Windows[window].Name
}

// All are the timetables of pools.
func All(pools []v1alpha1.GPUPool, jitter time.Duration) []Timetable {
	tables := make([]Timetable, len(pools))
	for i := range pools {
		tables[i] = Of(&pools[i], jitter)
	}
	return tables
}

// On are the pools as they are on a node, and when that will be otherwise; zero: never.
func On(tables []Timetable, node string, now time.Time) (pools []v1alpha1.GPUPool, again time.Time) {
	pools = make([]v1alpha1.GPUPool, len(tables))
	for i, t := range tables {
		m := t.At(node, now)
		pools[i] = *m.Now
		again = Earlier(again, m.Again)
	}
	return pools, again
}

// Earlier is the earlier of two moments; a zero one is never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
