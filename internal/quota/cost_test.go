// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

func TestCostOf(t *testing.T) {
	admin := onDevice("gpu-1")
	admin.AdminAccess = ptr.To(true)
	foreign := onDevice("gpu-1")
	foreign.Driver = "gpu.example.com"
	silent := onDevice("gpu-0")
	alternative := onDevice("gpu-2-mig-3g40gb-0")
	alternative.Request = "r/3g-40gb"
	tests := []struct {
		name  string
		claim *resourceapi.ResourceClaim
		want  Charges
	}{
		{name: "a claim without an allocation costs nothing", claim: &resourceapi.ResourceClaim{}, want: Charges{}},
		{
			name: "a share costs one of gpus and what it consumes", claim: allocated(sharing("10Gi", "30")),
			want: inPool("soft", "gpus", "1", "memory", "10Gi", "compute", "30"),
		},
		{
			name: "a share of no compute costs none", claim: allocated(sharing("10Gi", "0")),
			want: inPool("soft", "gpus", "1", "memory", "10Gi", "compute", "0"),
		},
		{
			name: "a share that does not say what it consumes costs the whole GPU", claim: allocated(silent),
			want: inPool("soft", "gpus", "1", "memory", "160Gi", "compute", "200"),
		},
		{
			name: "an exclusive GPU costs all of it", claim: allocated(onDevice("gpu-1")),
			want: inPool("whole", "gpus", "1", "memory", "80Gi", "compute", "100"),
		},
		{
			name: "a MIG instance costs one of its profile, its memory and its compute", claim: allocated(onDevice("gpu-2-mig-1g10gb-0")),
			want: inPool("mig", "mig/1g.10gb", "1", "memory", "9984Mi", "compute", "14"),
		},
		{
			name: "a profile with media engines is counted by its own name", claim: allocated(onDevice("gpu-2-mig-1g10gbpme-0")),
			want: inPool("mig", "mig/1g.10gb+me", "1", "memory", "9984Mi", "compute", "14"),
		},
		{
			name: "an alternative of firstAvailable costs what was chosen", claim: allocated(alternative),
			want: inPool("mig", "mig/3g.40gb", "1", "memory", "40448Mi", "compute", "42"),
		},
		{
			name: "each device of a count costs", claim: allocated(sharing("10Gi", "30"), sharing("10Gi", "30")),
			want: inPool("soft", "gpus", "2", "memory", "20Gi", "compute", "60"),
		},
		{
			name: "requests of several pools cost in each", claim: allocated(sharing("1Gi", "1"), onDevice("gpu-1")),
			want: Charges{"soft": amounts("gpus", "1", "memory", "1Gi", "compute", "1"), "whole": amounts("gpus", "1", "memory", "80Gi", "compute", "100")},
		},
		{name: "access for monitoring costs nothing", claim: allocated(admin), want: Charges{}},
		{name: "a device of another driver costs nothing", claim: allocated(foreign), want: Charges{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := CostOf(tc.claim, knownFacts())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("cost (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnUnknownDeviceIsNeverFree(t *testing.T) {
	got, err := CostOf(allocated(sharing("1Gi", "1"), onDevice("gpu-7")), knownFacts())
	var unknown *UnknownDeviceError
	if !errors.As(err, &unknown) {
		t.Fatalf("want an UnknownDeviceError, got %v", err)
	}
	if want := []DeviceID{{"n1", "gpu-7"}}; !cmp.Equal(want, unknown.Devices) {
		t.Errorf("want %v, got %v", want, unknown.Devices)
	}
	if diff := cmp.Diff(inPool("soft", "gpus", "1", "memory", "1Gi", "compute", "1"), got); diff != "" {
		t.Errorf("what is known still counts (-want +got):\n%s", diff)
	}
}

func TestFactsOf(t *testing.T) {
	node := v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.GPUs = []v1alpha1.GPUStatus{
		{UUID: "a", Minor: ptr.To[int32](0), Memory: ptr.To(resource.MustParse("80Gi")), Published: v1alpha1.PublishedForm{
			Pool: "whole", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingExclusive,
		}},
		{UUID: "b", Minor: ptr.To[int32](1), Product: "H100", Memory: ptr.To(resource.MustParse("80Gi")), Published: v1alpha1.PublishedForm{
			Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive,
		}},
	}
	node.Status.Profiles = []v1alpha1.MIGProfile{
		{Product: "H100", Name: "1g.10gb", Memory: ptr.To(resource.MustParse("9984Mi")), Compute: 14},
		{Product: "A30", Name: "1g.6gb", Memory: ptr.To(resource.MustParse("6Gi")), Compute: 25},
	}
	tests := []struct {
		name   string
		slices []resourceapi.ResourceSlice
		device string
		want   Device
		absent bool
	}{
		{name: "without slices the node tells of a GPU", device: "gpu-0", want: Device{Pool: "whole", Memory: 80 * gi, Compute: 100}},
		{name: "without slices the node tells of a MIG placement, wherever it starts", device: "gpu-1-mig-1g10gb-4", want: Device{Pool: "mig", Profile: "1g.10gb", Memory: 9984 * mebi, Compute: 14}},
		{name: "a profile of another board is not one of this GPU", device: "gpu-1-mig-1g6gb-0", absent: true},
		{name: "a slice counts before the node", slices: []resourceapi.ResourceSlice{slice(1, published("gpu-0", "soft", "", true, "160Gi", "200"))}, device: "gpu-0", want: Device{Pool: "soft", Shared: true, Memory: 160 * gi, Compute: 200}},
		{
			name: "the newest generation of slices counts", device: "gpu-5",
			slices: []resourceapi.ResourceSlice{slice(3, published("gpu-5", "new", "", false, "2Gi", "2")), slice(2, published("gpu-5", "old", "", false, "1Gi", "1"))},
			want:   Device{Pool: "new", Memory: 2 * gi, Compute: 2},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, found := FactsOf(tc.slices, []v1alpha1.GPUNode{node}).find(DeviceID{"n1", tc.device})
			if found == tc.absent {
				t.Fatalf("found: %v", found)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("device (-want +got):\n%s", diff)
			}
		})
	}
}
