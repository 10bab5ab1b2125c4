// SPDX-License-Identifier: Apache-2.0

package assign_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

func TestOverride(t *testing.T) {
	sevenths := []v1alpha1.MIGLayout{{Name: "sevenths", Instances: []v1alpha1.MIGCount{{Profile: "1g.10gb", Count: 7}}}}
	whole := []v1alpha1.MIGLayout{{Name: "whole", Instances: []v1alpha1.MIGCount{{Profile: "7g.80gb", Count: 1}}}}
	layouts := func(layouts []v1alpha1.MIGLayout) v1alpha1.Partitioning {
		return v1alpha1.Partitioning{Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGStatic, Layouts: layouts}}
	}
	dynamic := func(keepIdle *int32) v1alpha1.Partitioning {
		return v1alpha1.Partitioning{
			Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGDynamic, KeepIdleSeconds: keepIdle},
		}
	}
	tests := []struct {
		name    string
		spec    v1alpha1.GPUPoolSpec
		over    v1alpha1.ScheduleOverride
		want    v1alpha1.GPUPoolSpec
		problem string
	}{
		{
			name: "layouts replace layouts, and the rest stays",
			spec: v1alpha1.GPUPoolSpec{Partitioning: layouts(sevenths)},
			over: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{Layouts: whole}}},
			want: v1alpha1.GPUPoolSpec{Partitioning: layouts(whole)},
		},
		{
			name: "one ratio replaces one ratio",
			spec: v1alpha1.GPUPoolSpec{Overcommit: &v1alpha1.Overcommit{MemoryPercent: 150, ComputePercent: 200}},
			over: v1alpha1.ScheduleOverride{Overcommit: v1alpha1.OvercommitOverride{ComputePercent: 400}},
			want: v1alpha1.GPUPoolSpec{Overcommit: &v1alpha1.Overcommit{MemoryPercent: 150, ComputePercent: 400}},
		},
		{
			name: "a ratio where there was none leaves the other at 100",
			over: v1alpha1.ScheduleOverride{Overcommit: v1alpha1.OvercommitOverride{MemoryPercent: 150}},
			want: v1alpha1.GPUPoolSpec{Overcommit: &v1alpha1.Overcommit{MemoryPercent: 150, ComputePercent: 100}},
		},
		{
			name: "whole GPUs have no MIG fields",
			spec: v1alpha1.GPUPoolSpec{Partitioning: layouts(sevenths)},
			over: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{Type: v1alpha1.PartitioningNone}},
			want: v1alpha1.GPUPoolSpec{Partitioning: v1alpha1.Partitioning{Type: v1alpha1.PartitioningNone}},
		},
		{
			name: "MIG without more is dynamic",
			spec: v1alpha1.GPUPoolSpec{Partitioning: v1alpha1.Partitioning{Type: v1alpha1.PartitioningNone}},
			over: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{Type: v1alpha1.PartitioningMIG}},
			want: v1alpha1.GPUPoolSpec{Partitioning: dynamic(nil)},
		},
		{
			name: "what belongs to the other strategy is left out",
			spec: v1alpha1.GPUPoolSpec{Partitioning: dynamic(ptr.To[int32](60))},
			over: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{Strategy: v1alpha1.MIGStatic, Layouts: whole}}},
			want: v1alpha1.GPUPoolSpec{Partitioning: layouts(whole)},
		},
		{
			name: "back to dynamic the layouts are left out",
			spec: v1alpha1.GPUPoolSpec{Partitioning: layouts(sevenths)},
			over: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{Strategy: v1alpha1.MIGDynamic, KeepIdleSeconds: ptr.To[int32](9)}}},
			want: v1alpha1.GPUPoolSpec{Partitioning: dynamic(ptr.To[int32](9))},
		},
		{
			name:    "a static strategy without layouts makes no sense",
			spec:    v1alpha1.GPUPoolSpec{Partitioning: dynamic(nil)},
			over:    v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{Strategy: v1alpha1.MIGStatic}}},
			problem: "strategy Static needs layouts",
		},
		{
			name:    "nor do layouts of whole GPUs",
			over:    v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{Layouts: whole}}},
			problem: "it has layouts",
		},
		{
			name:    "nor do dynamic instances that are shared",
			spec:    v1alpha1.GPUPoolSpec{Sharing: v1alpha1.Sharing{Mode: v1alpha1.SharingSoftware}},
			over:    v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{Type: v1alpha1.PartitioningMIG}},
			problem: "strategy Dynamic goes with sharing.mode Exclusive only",
		},
		{
			name: "nor does a layout of time slices",
			spec: v1alpha1.GPUPoolSpec{Sharing: v1alpha1.Sharing{Mode: v1alpha1.SharingTimeSlicing}},
			over: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{
				Type: v1alpha1.PartitioningMIG, MIG: v1alpha1.MIGOverride{Strategy: v1alpha1.MIGStatic, Layouts: whole},
			}},
			problem: "MIG instances are not shared by TimeSlicing",
		},
		{
			name:    "nor does overcommitment of exclusive devices",
			spec:    v1alpha1.GPUPoolSpec{Sharing: v1alpha1.Sharing{Mode: v1alpha1.SharingExclusive}},
			over:    v1alpha1.ScheduleOverride{Overcommit: v1alpha1.OvercommitOverride{MemoryPercent: 150}},
			problem: "it overcommits devices that are Exclusive",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := assign.Override(&v1alpha1.GPUPool{Spec: tc.spec}, tc.over)
			switch {
			case tc.problem == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tc.problem != "" && (err == nil || !strings.Contains(err.Error(), tc.problem)):
				t.Fatalf("want a problem with %q, got %v", tc.problem, err)
			case tc.problem != "":
				return
			}
			if diff := cmp.Diff(tc.want, got.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}
