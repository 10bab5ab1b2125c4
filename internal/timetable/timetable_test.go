// SPDX-License-Identifier: Apache-2.0

package timetable_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

// evening is 22:00 in Shanghai, on a Monday.
var evening = time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)

// night overcommits memory by a ratio from 22:00 to 06:00.
func night(name string, percent int32) v1alpha1.Schedule {
	return v1alpha1.Schedule{
		Name: name, Start: "22:00", End: "06:00", LeadSeconds: ptr.To[int32](600),
		Override: v1alpha1.ScheduleOverride{Overcommit: v1alpha1.OvercommitOverride{MemoryPercent: percent}},
	}
}

func pool(zone string, schedules ...v1alpha1.Schedule) *v1alpha1.GPUPool {
	return &v1alpha1.GPUPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.GPUPoolSpec{TimeZone: zone, Schedules: schedules},
	}
}

// percent is what a pool overcommits.
func percent(p *v1alpha1.GPUPool) int32 {
	if p == nil || p.Spec.Overcommit == nil {
		return 0
	}
	return p.Spec.Overcommit.MemoryPercent
}

func TestAt(t *testing.T) {
	type answer struct {
		Now, Next        int32
		NotBefore, Again time.Time
	}
	tests := []struct {
		name string
		pool *v1alpha1.GPUPool
		now  time.Time
		want answer
	}{
		{name: "a pool without schedules is what it is", pool: pool(""), now: evening},
		{
			name: "by day the pool is what its spec says", pool: pool("Asia/Shanghai", night("night", 150)), now: evening.Add(-time.Hour),
			want: answer{Again: evening.Add(-10 * time.Minute)},
		},
		{
			name: "shortly before, what comes next is known", pool: pool("Asia/Shanghai", night("night", 150)), now: evening.Add(-5 * time.Minute),
			want: answer{Next: 150, NotBefore: evening, Again: evening},
		},
		{
			name: "at night the pool is another one", pool: pool("Asia/Shanghai", night("night", 150)), now: evening,
			want: answer{Now: 150, Again: evening.Add(8*time.Hour - 10*time.Minute)},
		},
		{
			name: "of two schedules the first counts", pool: pool("Asia/Shanghai", night("a", 150), night("b", 200)), now: evening,
			want: answer{Now: 150, Again: evening.Add(8*time.Hour - 10*time.Minute)},
		},
		{name: "in an unknown zone no schedule comes into force", pool: pool("Asia/Nowhere", night("night", 150)), now: evening},
		{
			name: "a schedule that cannot be followed is left out", now: evening,
			pool: pool("Asia/Shanghai", v1alpha1.Schedule{
				Name: "bad", Start: "22:00", End: "06:00", Override: v1alpha1.ScheduleOverride{
					Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{Strategy: v1alpha1.MIGStatic}, Type: v1alpha1.PartitioningMIG},
				},
			}, night("good", 200)),
			want: answer{Now: 200, Again: evening.Add(8*time.Hour - 10*time.Minute)},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			m := timetable.Of(tc.pool, 0).At("n", tc.now)
			got := answer{Now: percent(m.Now), Next: percent(m.Next), NotBefore: m.NotBefore, Again: m.Again}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateApproxTime(0)); diff != "" {
				t.Errorf("moment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConflict(t *testing.T) {
	bad := v1alpha1.Schedule{Name: "bad", Start: "10:00", End: "12:00", Override: v1alpha1.ScheduleOverride{
		Partitioning: v1alpha1.PartitioningOverride{Type: v1alpha1.PartitioningMIG, MIG: v1alpha1.MIGOverride{Strategy: v1alpha1.MIGStatic}},
	}}
	tests := []struct {
		name   string
		pool   *v1alpha1.GPUPool
		reason string
		says   []string
	}{
		{name: "one schedule is no conflict", pool: pool("UTC", night("night", 150))},
		{
			name: "two at once are", pool: pool("UTC", night("a", 150), night("b", 200)), reason: v1alpha1.ReasonSchedulesOverlap,
			says: []string{"a and b overlap", "a counts"},
		},
		{
			name: "an unknown zone is", pool: pool("Asia/Nowhere", night("a", 150)), reason: v1alpha1.ReasonInvalidTimeZone,
			says: []string{"Asia/Nowhere", "IANA"},
		},
		{
			name: "the zone of the manager's own machine is none", pool: pool("Local", night("a", 150)), reason: v1alpha1.ReasonInvalidTimeZone,
		},
		{
			name: "an override that makes no sense is, and overlaps are told too", pool: pool("UTC", bad, night("a", 150), night("b", 200)),
			reason: v1alpha1.ReasonInvalidOverride, says: []string{"schedule bad is not followed", "layouts", "a and b overlap"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := timetable.Of(tc.pool, 0).Conflict()
			if got.Reason != tc.reason {
				t.Errorf("reason: want %q, got %q", tc.reason, got.Reason)
			}
			for _, want := range tc.says {
				if !strings.Contains(got.Message, want) {
					t.Errorf("want %q in %q", want, got.Message)
				}
			}
		})
	}
}

func TestStatus(t *testing.T) {
	table := timetable.Of(pool("Asia/Shanghai", night("night", 150)), 0)
	want := v1alpha1.PoolSchedule{Active: "night", NextChange: ptr.To(metav1.NewTime(evening.Add(8 * time.Hour)))}
	got, again := table.Status(evening)
	if diff := cmp.Diff(want, got, cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if !again.Equal(want.NextChange.Time) {
		t.Errorf("want to look again at %s, got %s", want.NextChange, again)
	}
	if got, again := timetable.Of(pool(""), 0).Status(evening); got != (v1alpha1.PoolSchedule{}) || !again.IsZero() {
		t.Errorf("a pool without schedules says %v, to look at again at %s", got, again)
	}
}
