// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/shares"
)

func TestGather(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	object := func(name string, spec v1alpha1.GPUPoolSpec) v1alpha1.GPUPool {
		return v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	shared := object("shared", v1alpha1.GPUPoolSpec{
		Default: ptr.To(true),
		Sharing: v1alpha1.Sharing{DefaultMemory: ptr.To(resource.MustParse("8Gi")), DefaultCompute: ptr.To[int32](10)},
	})
	mig := object("mig", v1alpha1.GPUPoolSpec{Partitioning: v1alpha1.Partitioning{Type: v1alpha1.PartitioningMIG}})
	whole := object("whole", v1alpha1.GPUPoolSpec{Sharing: v1alpha1.Sharing{Mode: v1alpha1.SharingExclusive}})
	whole.DeletionTimestamp = &now

	decide := func(uuid, pool string, partitioning v1alpha1.PartitioningType, taint v1alpha1.TaintReason) v1alpha1.GPUDecision {
		return v1alpha1.GPUDecision{UUID: uuid, Pool: pool, Partitioning: partitioning, Taint: taint}
	}
	node := v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Spec: &v1alpha1.GPUNodeSpec{GPUs: []v1alpha1.GPUDecision{
			decide("u0", "shared", v1alpha1.PartitioningNone, ""),
			decide("u1", "shared", v1alpha1.PartitioningNone, v1alpha1.TaintNotSelected),
			decide("u2", "mig", v1alpha1.PartitioningMIG, ""),
			decide("u3", "mig", v1alpha1.PartitioningMIG, ""),
			decide("u4", "mig", v1alpha1.PartitioningNone, ""),
			decide("u5", "shared", v1alpha1.PartitioningNone, ""),
			decide("u7", "mig", v1alpha1.PartitioningMIG, v1alpha1.TaintPoolChanged),
			decide("u8", "mig", v1alpha1.PartitioningMIG, v1alpha1.TaintPoolDeleted),
			decide("u6", "gone", v1alpha1.PartitioningNone, ""),
		}},
		Status: v1alpha1.GPUNodeStatus{Profiles: []v1alpha1.MIGProfile{
			{Product: "A", Name: "1g.10gb", Memory: ptr.To(resource.MustParse("9.5Gi")), Compute: 14},
			{Product: "B", Name: "1g.12gb", Memory: ptr.To(resource.MustParse("11Gi")), Compute: 14},
		}},
	}
	for _, uuid := range []string{"u0", "u1", "u2", "u3", "u4", "u6", "u7", "u8"} {
		node.Status.GPUs = append(node.Status.GPUs, v1alpha1.GPUStatus{UUID: uuid, Product: "A", Memory: ptr.To(resource.MustParse("85899345921"))})
	}
	undecided := v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}

	gpu := GPU{Node: "n1", Product: "A", Memory: 80 * gibi}
	want := []Pool{
		{
			Name: "mig", Form: MIG, GPUs: []GPU{gpu, gpu}, Changing: 2,
			Profiles: []Profile{{Product: "A", Name: "1g.10gb", Memory: mi(9728), Compute: 14}},
		},
		{Name: "shared", Default: true, Form: Shared, DefaultMemory: 8 * gibi, DefaultCompute: 10, LeastMemory: mi(704), GPUs: []GPU{gpu}},
		{Name: "whole", Deleting: true, Form: Exclusive},
	}
	got := Gather([]v1alpha1.GPUPool{whole, shared, mig}, []v1alpha1.GPUNode{node, undecided})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// TestGatherLayouts gathers GPUs with static layouts: the profiles of the layout are given where its instances are exclusive,
// and each instance is shared like a GPU where they are not.
func TestGatherLayouts(t *testing.T) {
	static := func(name string, mode v1alpha1.SharingMode) v1alpha1.GPUPool {
		return v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GPUPoolSpec{
			Partitioning: v1alpha1.Partitioning{Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGStatic}},
			Sharing:      v1alpha1.Sharing{Mode: mode},
		}}
	}
	decide := func(uuid, pool string, mode v1alpha1.SharingMode, instances ...v1alpha1.MIGPlacement) v1alpha1.GPUDecision {
		return v1alpha1.GPUDecision{
			UUID: uuid, Pool: pool, Partitioning: v1alpha1.PartitioningMIG, Strategy: v1alpha1.MIGStatic, Sharing: mode, Instances: instances,
		}
	}
	small := func(start int32) v1alpha1.MIGPlacement {
		return v1alpha1.MIGPlacement{Start: &start, Profile: "1g.10gb"}
	}
	node := v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: &v1alpha1.GPUNodeSpec{GPUs: []v1alpha1.GPUDecision{
			decide("u0", "each", v1alpha1.SharingExclusive, small(6)),
			decide("u1", "shared", v1alpha1.SharingMPS, small(6), small(4)),
			decide("u2", "shared", v1alpha1.SharingExclusive, small(6)),
		}},
		Status: v1alpha1.GPUNodeStatus{Profiles: []v1alpha1.MIGProfile{
			{Product: "A", Name: "1g.10gb", Memory: ptr.To(resource.MustParse("9.5Gi")), Compute: 14},
			{Product: "A", Name: "3g.40gb", Memory: ptr.To(resource.MustParse("39Gi")), Compute: 42},
		}},
	}
	for _, uuid := range []string{"u0", "u1", "u2"} {
		node.Status.GPUs = append(node.Status.GPUs, v1alpha1.GPUStatus{UUID: uuid, Product: "A", Memory: ptr.To(resource.MustParse("80Gi"))})
	}
	instance := GPU{Node: "n", Product: "A", Memory: mi(9728), Compute: 14}
	want := []Pool{
		{
			Name: "each", Form: MIG, GPUs: []GPU{{Node: "n", Product: "A", Memory: 80 * gibi}},
			Profiles: []Profile{{Product: "A", Name: "1g.10gb", Memory: mi(9728), Compute: 14}},
		},
		{Name: "shared", LeastMemory: shares.MinMemoryBytes, Form: Shared, GPUs: []GPU{instance, instance}, Changing: 1},
	}
	got := Gather([]v1alpha1.GPUPool{static("each", ""), static("shared", v1alpha1.SharingMPS)}, []v1alpha1.GPUNode{node})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if _, _, err := got[1].serveShared(Request{Name: "c", Count: 1, MemoryMi: 2048, Compute: 20}); err == nil {
		t.Error("more compute than an instance has is admitted")
	}
}

func TestFormatMemory(t *testing.T) {
	for _, tc := range []struct {
		bytes int64
		want  string
	}{
		{mi(9728), "9.5Gi"}, {mi(9856), "9.62Gi"}, {mi(81152), "79.25Gi"}, {10 * gibi, "10Gi"}, {mi(512), "512Mi"},
		{gibi - 1, "1023Mi"}, {100 * gibi, "100Gi"}, {mi(1075), "1.04Gi"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			if got := FormatMemory(tc.bytes); got != tc.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestLargerProfile(t *testing.T) {
	for _, tc := range []struct {
		name    string
		pool    Pool
		request Request
		want    string
	}{
		{
			name: "an amount that the name promises but the instance lacks", pool: migPool(a100),
			request: Request{MemoryMi: 40 << 10, Profiles: []string{"7g.80gb"}},
			want:    "40Gi does not fit 3g.40gb (39.25Gi): takes 7g.80gb (79Gi)",
		},
		{
			name: "an amount that fits what its name says", pool: migPool(a100),
			request: Request{MemoryMi: 9 << 10, Profiles: []string{"1g.10gb", "1g.20gb"}},
		},
		{
			name: "an amount between two sizes", pool: migPool(a100),
			request: Request{MemoryMi: 12 << 10, Profiles: []string{"1g.20gb", "3g.40gb"}},
		},
		{
			name: "an amount that one of two boards holds under the same name", pool: migPool(a100, h100),
			request: Request{MemoryMi: 9900, Profiles: []string{"1g.10gb", "1g.20gb"}},
		},
		{
			name: "a profile that lacks the compute anyway is not missed", pool: migPool(a100),
			request: Request{MemoryMi: 10 << 10, Compute: 42, Profiles: []string{"3g.40gb"}},
		},
		{
			name: "compute alone", pool: migPool(a100), request: Request{Compute: 50, Profiles: []string{"4g.40gb"}},
		},
		{
			name: "a profile that the pool does not have any more", pool: migPool(a30),
			request: Request{MemoryMi: 10 << 10, Profiles: []string{"1g.20gb"}},
		},
		{
			name: "a shared pool", pool: sharedPool("shared", 1), request: Request{MemoryMi: 10 << 10},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.pool.LargerProfile(tc.request)); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
		})
	}
}

// A thousand nodes of eight GPUs are looked at for each pod.
func BenchmarkGather(b *testing.B) {
	pools := []v1alpha1.GPUPool{{ObjectMeta: metav1.ObjectMeta{Name: "mig"}, Spec: v1alpha1.GPUPoolSpec{
		Partitioning: v1alpha1.Partitioning{Type: v1alpha1.PartitioningMIG},
	}}}
	var nodes []v1alpha1.GPUNode
	for i := range 1000 {
		node := v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}, Spec: &v1alpha1.GPUNodeSpec{}}
		for j := range 8 {
			uuid := fmt.Sprintf("GPU-%d-%d", i, j)
			node.Spec.GPUs = append(node.Spec.GPUs, v1alpha1.GPUDecision{UUID: uuid, Pool: "mig", Partitioning: v1alpha1.PartitioningMIG})
			node.Status.GPUs = append(node.Status.GPUs, v1alpha1.GPUStatus{UUID: uuid, Product: a100, Memory: ptr.To(resource.MustParse("80Gi"))})
		}
		for _, profile := range migPool(a100).Profiles {
			node.Status.Profiles = append(node.Status.Profiles, v1alpha1.MIGProfile{
				Product: a100, Name: profile.Name, Memory: resource.NewQuantity(profile.Memory, resource.BinarySI), Compute: int32(profile.Compute),
			})
		}
		nodes = append(nodes, node)
	}
	for b.Loop() {
		if got := Gather(pools, nodes); len(got[0].GPUs) != 8000 {
			b.Fatalf("%d GPUs", len(got[0].GPUs))
		}
	}
}
