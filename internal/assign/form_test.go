// SPDX-License-Identifier: Apache-2.0

package assign_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
)

func TestSelects(t *testing.T) {
	gpu := &v1alpha1.GPUStatus{UUID: uuid, Minor: ptr.To[int32](0), Product: "NVIDIA H100 80GB HBM3"}
	labels := map[string]string{"room": "here"}
	tests := []struct {
		name  string
		nodes *metav1.LabelSelector
		gpus  v1alpha1.GPUSelector
		gpu   *v1alpha1.GPUStatus
		want  bool
	}{
		{name: "no selector matches every GPU", gpu: gpu, want: true},
		{name: "an empty node selector matches every node", nodes: &metav1.LabelSelector{}, gpu: gpu, want: true},
		{name: "a label matches", nodes: &metav1.LabelSelector{MatchLabels: labels}, gpu: gpu, want: true},
		{
			name:  "an expression excludes the node",
			nodes: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "room", Operator: metav1.LabelSelectorOpDoesNotExist}}},
			gpu:   gpu,
		},
		{
			name:  "a selector that cannot be read matches nothing",
			nodes: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "room", Operator: "Near"}}},
			gpu:   gpu,
		},
		{name: "the exact product matches", gpus: v1alpha1.GPUSelector{Products: []string{"NVIDIA H100 80GB HBM3"}}, gpu: gpu, want: true},
		{name: "a product's beginning alone does not match", gpus: v1alpha1.GPUSelector{Products: []string{"NVIDIA H100"}}, gpu: gpu},
		{name: "a product pattern matches", gpus: v1alpha1.GPUSelector{Products: []string{"NVIDIA A100*", "NVIDIA H100*"}}, gpu: gpu, want: true},
		{name: "a pattern with stars inside matches in order", gpus: v1alpha1.GPUSelector{Products: []string{"*H100*80GB*"}}, gpu: gpu, want: true},
		{name: "a pattern's parts must not overlap", gpus: v1alpha1.GPUSelector{Products: []string{"NVIDIA*HBM3*HBM3"}}, gpu: gpu},
		{name: "spaces may be written as hyphens", gpus: v1alpha1.GPUSelector{Products: []string{"NVIDIA-H100-*"}}, gpu: gpu, want: true},
		{name: "the UUID matches", gpus: v1alpha1.GPUSelector{UUIDs: []string{uuid}}, gpu: gpu, want: true},
		{name: "another UUID does not match", gpus: v1alpha1.GPUSelector{UUIDs: []string{"GPU-x"}}, gpu: gpu},
		{name: "minor 0 matches", gpus: v1alpha1.GPUSelector{Minors: []int32{0}}, gpu: gpu, want: true},
		{name: "another minor does not match", gpus: v1alpha1.GPUSelector{Minors: []int32{1}}, gpu: gpu},
		{name: "the lists are joined by AND", gpus: v1alpha1.GPUSelector{Minors: []int32{0}, Products: []string{"NVIDIA A100*"}}, gpu: gpu},
		{name: "a GPU that is not reported stays selected by product", gpus: v1alpha1.GPUSelector{Products: []string{"NVIDIA A100*"}}, want: true},
		{name: "a GPU that is not reported is not selected by another UUID", gpus: v1alpha1.GPUSelector{UUIDs: []string{"GPU-x"}}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := pool("p", 1)
			p.Spec.NodeSelector, p.Spec.GPUSelector = tc.nodes, tc.gpus
			if got := assign.Selects(&p, labels, uuid, tc.gpu); got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}

func TestDecision(t *testing.T) {
	shared := pool("p", 1)
	shared.Spec.Sharing = v1alpha1.Sharing{
		Mode: v1alpha1.SharingTimeSlicing, MaxTenantsPerDevice: 4,
		DefaultMemory: ptr.To(resource.MustParse("8Gi")), DefaultCompute: ptr.To[int32](10),
	}
	shared.Spec.Overcommit = &v1alpha1.Overcommit{MemoryPercent: 150, ComputePercent: 200}
	capped := pool("p", 1)
	capped.Spec.Sharing.Compute = v1alpha1.ComputeCap
	strict := pool("p", 1)
	strict.Spec.Sharing.MemoryLimits, strict.Spec.Sharing.OnViolation = v1alpha1.MemoryLimitsDriver, v1alpha1.ViolationKill
	tests := []struct {
		name string
		pool v1alpha1.GPUPool
		want v1alpha1.GPUDecision
	}{
		{
			name: "a cap of compute is handed on",
			pool: capped,
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "None", Sharing: "Software", MemoryPercent: 100, ComputePercent: 100, MaxTenants: 16,
				Compute: "Cap",
			},
		},
		{
			name: "what holds memory, and what happens to who holds more, is handed on",
			pool: strict,
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "None", Sharing: "Software", MemoryPercent: 100, ComputePercent: 100, MaxTenants: 16,
				MemoryLimits: "Driver", OnViolation: "Kill",
			},
		},
		{
			name: "a pool that says nothing shares whole GPUs without overcommit",
			pool: pool("p", 1),
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "None", Sharing: "Software", MemoryPercent: 100, ComputePercent: 100, MaxTenants: 16,
			},
		},
		{
			name: "everything said for shares is handed on",
			pool: shared,
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "None", Sharing: "TimeSlicing", MemoryPercent: 150, ComputePercent: 200, MaxTenants: 4,
				DefaultMemory: ptr.To(resource.MustParse("8Gi")), DefaultCompute: ptr.To[int32](10),
			},
		},
		{
			name: "an exclusive GPU has no shares",
			pool: pool("p", 1, exclusive),
			want: v1alpha1.GPUDecision{UUID: uuid, Pool: "p", Partitioning: "None", Sharing: "Exclusive", MemoryPercent: 100, ComputePercent: 100},
		},
		{
			name: "MIG is exclusive where the pool does not say",
			pool: pool("p", 1, mig),
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "MIG", Strategy: "Dynamic", Sharing: "Exclusive", MemoryPercent: 100, ComputePercent: 100,
			},
		},
		{
			name: "idle instances are kept as long as the pool says",
			pool: pool("p", 1, mig, func(p *v1alpha1.GPUPool) { p.Spec.Partitioning.MIG.KeepIdleSeconds = ptr.To[int32](60) }),
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "MIG", Strategy: "Dynamic", KeepIdleSeconds: 60, Sharing: "Exclusive",
				MemoryPercent: 100, ComputePercent: 100,
			},
		},
		{
			name: "the instances of a layout are shared where the pool says",
			pool: pool("p", 1, static, func(p *v1alpha1.GPUPool) { p.Spec.Sharing.Mode = v1alpha1.SharingMPS }),
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "MIG", Strategy: "Static", Sharing: "MPS",
				MemoryPercent: 100, ComputePercent: 100, MaxTenants: 16,
			},
		},
		{
			name: "NVIDIA's driver is told about turns",
			pool: pool("p", 1, func(p *v1alpha1.GPUPool) {
				p.Spec.Sharing = v1alpha1.Sharing{Mode: v1alpha1.SharingTimeSlicing, TimeSlice: v1alpha1.TimeSliceShort}
			}),
			want: v1alpha1.GPUDecision{
				UUID: uuid, Pool: "p", Partitioning: "None", Sharing: "TimeSlicing", TimeSlice: "Short",
				MemoryPercent: 100, ComputePercent: 100, MaxTenants: 16,
			},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, assign.Decision(&tc.pool, uuid)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
