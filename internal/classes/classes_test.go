// SPDX-License-Identifier: Apache-2.0

package classes_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/classes"
)

const (
	// undrained ends every selector.
	undrained      = ` && device.attributes["gpu.sluice.dev"].?draining.orValue(false) == false`
	sharedSelector = `device.driver == "gpu.sluice.dev" && device.attributes["gpu.sluice.dev"].?pool.orValue("") == "shared"` +
		` && device.attributes["gpu.sluice.dev"].?sharing.orValue("") in ["Software", "TimeSlicing", "MPS"]` + undrained
	wholeSelector = `device.driver == "gpu.sluice.dev" && device.attributes["gpu.sluice.dev"].?sharing.orValue("") == "Exclusive"` +
		` && device.attributes["gpu.sluice.dev"].?profile.orValue("") == ""` + undrained
	mediaSelector = `device.driver == "gpu.sluice.dev" && device.attributes["gpu.sluice.dev"].?profile.orValue("") == "1g.10gb+me"` + undrained
)

func pool(name string, partitioning v1alpha1.PartitioningType, mode v1alpha1.SharingMode) v1alpha1.GPUPool {
	return v1alpha1.GPUPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.GPUPoolSpec{
			Partitioning: v1alpha1.Partitioning{Type: partitioning}, Sharing: v1alpha1.Sharing{Mode: mode},
		},
	}
}

func deleted(p v1alpha1.GPUPool) v1alpha1.GPUPool {
	p.DeletionTimestamp = ptr.To(metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	return p
}

func static(p v1alpha1.GPUPool) v1alpha1.GPUPool {
	p.Spec.Partitioning.MIG = &v1alpha1.MIGPartitioning{
		Strategy: v1alpha1.MIGStatic,
		Layouts:  []v1alpha1.MIGLayout{{Name: "all", Instances: []v1alpha1.MIGCount{{Profile: "1g.10gb", Count: 7}}}},
	}
	return p
}

// atNight leaves the GPUs of a pool whole at night.
func atNight(p v1alpha1.GPUPool) v1alpha1.GPUPool {
	p.Spec.Partitioning.MIG = &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGDynamic}
	p.Spec.TimeZone = "UTC"
	p.Spec.Schedules = []v1alpha1.Schedule{{
		Name: "night", Start: "22:00", End: "06:00",
		Override: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{Type: v1alpha1.PartitioningNone}},
	}}
	return p
}

func sharing(n v1alpha1.GPUNode, mode v1alpha1.SharingMode) v1alpha1.GPUNode {
	n.Spec.GPUs[0].Sharing = mode
	return n
}

// node has one GPU of a board with the given profiles, decided for a pool.
func node(poolName string, partitioning v1alpha1.PartitioningType, profiles ...string) v1alpha1.GPUNode {
	n := v1alpha1.GPUNode{
		Spec:   &v1alpha1.GPUNodeSpec{GPUs: []v1alpha1.GPUDecision{{UUID: "GPU-1", Pool: poolName, Partitioning: partitioning}}},
		Status: v1alpha1.GPUNodeStatus{GPUs: []v1alpha1.GPUStatus{{UUID: "GPU-1", Product: "NVIDIA A100"}}},
	}
	for _, profile := range profiles {
		n.Status.Profiles = append(n.Status.Profiles, v1alpha1.MIGProfile{Product: "NVIDIA A100", Name: profile})
	}
	n.Status.Profiles = append(n.Status.Profiles, v1alpha1.MIGProfile{Product: "NVIDIA A30", Name: "1g.6gb"})
	return n
}

func TestNeeds(t *testing.T) {
	shared := pool("shared", v1alpha1.PartitioningNone, "")
	tests := []struct {
		name     string
		pools    []v1alpha1.GPUPool
		nodes    []v1alpha1.GPUNode
		extended bool
		want     []classes.Need
	}{
		{name: "without pools nothing is needed", want: []classes.Need{}},
		{
			name:  "a shared pool has a class of its own that selects what is shared",
			pools: []v1alpha1.GPUPool{shared},
			want:  []classes.Need{{Name: "shared.sluice.dev", Selector: sharedSelector, Pools: []string{"shared"}}},
		},
		{
			name: "exclusive pools share the class of whole GPUs",
			pools: []v1alpha1.GPUPool{
				pool("b", v1alpha1.PartitioningNone, v1alpha1.SharingExclusive), pool("a", v1alpha1.PartitioningNone, v1alpha1.SharingExclusive),
			},
			extended: true,
			want: []classes.Need{
				{Name: "a.sluice.dev", Selector: exclusiveSelector("a"), Pools: []string{"a"}},
				{Name: "b.sluice.dev", Selector: exclusiveSelector("b"), Pools: []string{"b"}},
				{Name: "gpu.sluice.dev", Selector: wholeSelector, ExtendedResource: "nvidia.com/gpu", Pools: []string{"a", "b"}},
			},
		},
		{
			name:     "a MIG pool needs the profiles of its boards, and no other board's",
			pools:    []v1alpha1.GPUPool{pool("mig", v1alpha1.PartitioningMIG, "")},
			nodes:    []v1alpha1.GPUNode{node("mig", v1alpha1.PartitioningMIG, "1g.10gb+me")},
			extended: true,
			want: []classes.Need{{
				Name: "mig-1g.10gb.me.sluice.dev", Selector: mediaSelector, ExtendedResource: "nvidia.com/mig-1g.10gb.me", Pools: []string{"mig"},
			}},
		},
		{
			name:  "a GPU that is not divided needs no profile",
			pools: []v1alpha1.GPUPool{shared},
			nodes: []v1alpha1.GPUNode{node("shared", v1alpha1.PartitioningNone, "1g.10gb")},
			want:  []classes.Need{{Name: "shared.sluice.dev", Selector: sharedSelector, Pools: []string{"shared"}}},
		},
		{
			name:     "without extended resources the classes carry no such name",
			pools:    []v1alpha1.GPUPool{pool("mig", v1alpha1.PartitioningMIG, "")},
			nodes:    []v1alpha1.GPUNode{node("mig", v1alpha1.PartitioningMIG, "1g.10gb+me")},
			extended: false,
			want:     []classes.Need{{Name: "mig-1g.10gb.me.sluice.dev", Selector: mediaSelector, Pools: []string{"mig"}}},
		},
		{
			name:  "a pool that shares the instances of a layout has a class of its own, and no profile's",
			pools: []v1alpha1.GPUPool{static(pool("shared", v1alpha1.PartitioningMIG, v1alpha1.SharingMPS))},
			nodes: []v1alpha1.GPUNode{sharing(node("shared", v1alpha1.PartitioningMIG, "1g.10gb"), v1alpha1.SharingMPS)},
			want:  []classes.Need{{Name: "shared.sluice.dev", Selector: sharedSelector, Pools: []string{"shared"}}},
		},
		{
			name:  "a MIG pool that a schedule makes one of whole GPUs has a class of its own too",
			pools: []v1alpha1.GPUPool{atNight(pool("shared", v1alpha1.PartitioningMIG, ""))},
			want:  []classes.Need{{Name: "shared.sluice.dev", Selector: sharedSelector, Pools: []string{"shared"}}},
		},
		{
			name:  "a deleted pool keeps its class while a GPU is decided for it",
			pools: []v1alpha1.GPUPool{deleted(shared)},
			nodes: []v1alpha1.GPUNode{node("shared", v1alpha1.PartitioningNone)},
			want:  []classes.Need{{Name: "shared.sluice.dev", Selector: sharedSelector, Pools: []string{"shared"}}},
		},
		{
			name:  "a deleted pool that holds nothing needs no class",
			pools: []v1alpha1.GPUPool{deleted(shared)},
			want:  []classes.Need{},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, classes.Needs(tc.pools, tc.nodes, tc.extended)); diff != "" {
				t.Errorf("needs (-want +got):\n%s", diff)
			}
		})
	}
}

func exclusiveSelector(name string) string {
	return `device.driver == "gpu.sluice.dev" && device.attributes["gpu.sluice.dev"].?pool.orValue("") == "` + name + `"` +
		` && device.attributes["gpu.sluice.dev"].?sharing.orValue("") == "Exclusive" && device.attributes["gpu.sluice.dev"].?profile.orValue("") == ""` + undrained
}

func foreign(name, extended string) resourceapi.DeviceClass {
	c := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	return c
}

func TestDecide(t *testing.T) {
	need := classes.Need{Name: "gpu.sluice.dev", Selector: wholeSelector, ExtendedResource: "nvidia.com/gpu", Pools: []string{"p"}}
	bare := need
	bare.ExtendedResource = ""
	tests := []struct {
		name     string
		needs    []classes.Need
		existing []resourceapi.DeviceClass
		want     classes.Plan
	}{
		{
			name:  "a class that does not exist is created",
			needs: []classes.Need{need},
			want:  classes.Plan{Create: []*resourceapi.DeviceClass{classes.Render(need)}},
		},
		{
			name:     "a class that is as needed is left alone",
			needs:    []classes.Need{need},
			existing: []resourceapi.DeviceClass{*classes.Render(need)},
		},
		{
			name:     "a class of ours that was changed is repaired",
			needs:    []classes.Need{need},
			existing: []resourceapi.DeviceClass{*classes.Render(bare)},
			want:     classes.Plan{Update: []*resourceapi.DeviceClass{classes.Render(need)}},
		},
		{
			name:     "a class of ours that nothing needs is removed",
			existing: []resourceapi.DeviceClass{*classes.Render(need), foreign("other.sluice.dev", "")},
			want:     classes.Plan{Delete: []*resourceapi.DeviceClass{classes.Render(need)}},
		},
		{
			name:     "somebody else's class of our name is not touched",
			needs:    []classes.Need{need},
			existing: []resourceapi.DeviceClass{foreign("gpu.sluice.dev", "")},
		},
		{
			name:     "our class goes without the name that somebody else's has",
			needs:    []classes.Need{need},
			existing: []resourceapi.DeviceClass{*classes.Render(need), foreign("gpu.example.com", "nvidia.com/gpu")},
			want:     classes.Plan{Update: []*resourceapi.DeviceClass{classes.Render(bare)}},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, classes.Decide(tc.needs, tc.existing)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	needs := []classes.Need{{Name: "gpu.sluice.dev", ExtendedResource: "nvidia.com/gpu", Pools: []string{"p"}}}
	existing := []resourceapi.DeviceClass{
		foreign("gpu.sluice.dev", ""), foreign("gpu.example.com", "nvidia.com/gpu"), foreign("unrelated", "example.com/gpu"),
		*classes.Render(classes.Need{Name: "mig-1g.10gb.sluice.dev", ExtendedResource: "nvidia.com/gpu"}),
	}
	want := []classes.Conflict{
		{Class: "gpu.sluice.dev", Pools: []string{"p"}},
		{Class: "gpu.example.com", ExtendedResource: "nvidia.com/gpu", Pools: []string{"p"}},
	}
	if diff := cmp.Diff(want, classes.Conflicts(needs, existing)); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
}

func TestMissing(t *testing.T) {
	needs := []classes.Need{
		{Name: "a.sluice.dev", Pools: []string{"a"}}, {Name: "b.sluice.dev", Pools: []string{"b"}}, {Name: "gpu.sluice.dev", Pools: []string{"a", "b"}},
	}
	existing := []resourceapi.DeviceClass{foreign("a.sluice.dev", ""), *classes.Render(needs[2])}
	if diff := cmp.Diff([]string{"a.sluice.dev"}, classes.Missing("a", needs, existing)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}
