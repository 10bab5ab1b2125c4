// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestUsable(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "pod"}}
	mine := []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "pod"}}
	owner := []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "pod", Controller: ptr.To(true)}}
	for _, tc := range []struct {
		name      string
		allocated bool
		reserved  []resourceapi.ResourceClaimConsumerReference
		owners    []metav1.OwnerReference
		owned     bool
		wantErr   bool
	}{
		{name: "an allocated and reserved claim is usable", allocated: true, reserved: mine},
		{name: "a claim that waits for allocation is not", reserved: mine, wantErr: true},
		{name: "a claim reserved for nobody is not", allocated: true, wantErr: true},
		{name: "a claim made for this pod is usable", allocated: true, reserved: mine, owners: owner, owned: true},
		{name: "a claim that should be this pod's but is not is refused", allocated: true, reserved: mine, owned: true, wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", OwnerReferences: tc.owners}}
			claim.Status.ReservedFor = tc.reserved
			if tc.allocated {
				claim.Status.Allocation = &resourceapi.AllocationResult{}
			}
			if err := usable(pod, claim, tc.owned); (err != nil) != tc.wantErr {
				t.Errorf("usable = %v, want an error: %v", err, tc.wantErr)
			}
		})
	}
}

func TestContainerDevices(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "extended",
		RequestMappings:   []corev1.ContainerExtendedResourceRequest{{ContainerName: "e", RequestName: "container-0-request-0"}},
	}
	claims := []fetchedClaim{{podClaim: podClaim{ref: "gpu"}, uid: "1"}, {podClaim: podClaim{}, uid: "2"}}
	prepared := map[types.UID]preparedClaim{
		"1": {Devices: []preparedDevice{
			{Requests: []string{"a"}, CDI: []string{"v/gpu=a"}},
			{Requests: []string{"b/small"}, CDI: []string{"v/gpu=b"}},
			{CDI: []string{"v/gpu=all"}},
		}},
		"2": {Devices: []preparedDevice{
			{Requests: []string{"container-0-request-0"}, CDI: []string{"v/mig=0"}},
			{Requests: []string{"container-1-request-0"}, CDI: []string{"v/mig=1"}},
		}},
	}
	for _, tc := range []struct {
		name, container string
		claims          []corev1.ResourceClaim
		want            []string
	}{
		{name: "a container that names no claim gets nothing", container: "x"},
		{name: "a claim without a request is all its devices", container: "x", claims: []corev1.ResourceClaim{{Name: "gpu"}}, want: []string{"v/gpu=a", "v/gpu=b", "v/gpu=all"}},
		{name: "a request is its own devices and those of all requests", container: "x", claims: []corev1.ResourceClaim{{Name: "gpu", Request: "a"}}, want: []string{"v/gpu=a", "v/gpu=all"}},
		{name: "a request is also its alternative taken", container: "x", claims: []corev1.ResourceClaim{{Name: "gpu", Request: "b"}}, want: []string{"v/gpu=b", "v/gpu=all"}},
		{name: "an extended resource is mapped by container", container: "e", want: []string{"v/mig=0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			container := corev1.Container{Name: tc.container, Resources: corev1.ResourceRequirements{Claims: tc.claims}}
			if diff := cmp.Diff(tc.want, containerDevices(pod, container, claims, prepared)); diff != "" {
				t.Errorf("the devices differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrphans(t *testing.T) {
	claims := []preparedClaim{{UID: "1", Pods: []types.UID{"a", "b"}}, {UID: "2", Pods: []types.UID{"b", "c"}}}
	got := orphans(claims, map[types.UID]bool{"a": true})
	if diff := cmp.Diff([]types.UID{"b", "c"}, got); diff != "" {
		t.Errorf("the orphans differ (-want +got):\n%s", diff)
	}
}
