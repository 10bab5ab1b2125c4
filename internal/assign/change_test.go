// SPDX-License-Identifier: Apache-2.0

package assign_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

func TestChanges(t *testing.T) {
	of := func(uuid, pool string, sharing v1alpha1.SharingMode, percent int32, taint v1alpha1.TaintReason) v1alpha1.GPUDecision {
		return v1alpha1.GPUDecision{
			UUID: uuid, Pool: pool, Partitioning: v1alpha1.PartitioningNone, Sharing: sharing, MemoryPercent: percent, Taint: taint,
		}
	}
	tests := []struct {
		name     string
		from, to []v1alpha1.GPUDecision
		want     []assign.Change
		replaces bool
	}{
		{
			name: "new GPUs of one pool are one change",
			to:   []v1alpha1.GPUDecision{of("a", "p", "Software", 100, ""), of("b", "p", "Software", 100, "")},
			want: []assign.Change{{UUIDs: []string{"a", "b"}, From: "none", To: "p (None, Software)"}},
		},
		{
			name: "a new ratio is no change worth a word",
			from: []v1alpha1.GPUDecision{of("a", "p", "Software", 100, "")},
			to:   []v1alpha1.GPUDecision{of("a", "p", "Software", 150, "")},
		},
		{
			name: "a taint is a change that replaces nothing",
			from: []v1alpha1.GPUDecision{of("a", "p", "Software", 100, "")},
			to:   []v1alpha1.GPUDecision{of("a", "p", "Software", 100, v1alpha1.TaintPoolDeleted)},
			want: []assign.Change{{UUIDs: []string{"a"}, From: "p (None, Software)", To: "p (None, Software) tainted PoolDeleted"}},
		},
		{
			name: "another form replaces the old one",
			from: []v1alpha1.GPUDecision{of("a", "p", "Software", 100, "")},
			to:   []v1alpha1.GPUDecision{of("a", "p", "Exclusive", 100, "")},
			want: []assign.Change{{UUIDs: []string{"a"}, From: "p (None, Software)", To: "p (None, Exclusive)"}}, replaces: true,
		},
		{
			name: "a dropped decision is replaced by none",
			from: []v1alpha1.GPUDecision{of("a", "p", "Software", 100, "")},
			want: []assign.Change{{UUIDs: []string{"a"}, From: "p (None, Software)", To: "none"}}, replaces: true,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, assign.Changes(tc.from, tc.to)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if got := assign.Replaces(tc.from, tc.to); got != tc.replaces {
				t.Errorf("replaces: want %v, got %v", tc.replaces, got)
			}
		})
	}
}
