// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/internal/quota"
)

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func pod(name string, priority int32, options ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority},
	}
	for _, option := range options {
		option(p)
	}
	return p
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(noon())) }

// lingering was deleted by somebody who gave it a day.
func lingering(p *corev1.Pod) {
	p.DeletionTimestamp = ptr.To(metav1.NewTime(noon().Add(24 * time.Hour)))
}

func done(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

// claim is an allocated claim of one GPU that is reserved for pods, made so many seconds after noon.
func claim(name string, after int, pods ...string) held {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{
		AllocationTimestamp: ptr.To(metav1.NewTime(noon().Add(time.Duration(after) * time.Second))),
		Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: "gpu.sluice.dev", Pool: "n", Device: "gpu-0"}},
		},
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
	}
	return held{claim: c, charges: gpus(1)}
}

func gpus(n int64) quota.Charges { return quota.Charges{"p": {"gpus": n}} }

func TestHolders(t *testing.T) {
	at := func(seconds int) time.Time { return noon().Add(time.Duration(seconds) * time.Second) }
	elsewhere := claim("c", 1)
	elsewhere.claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "example.com", Resource: "jobs", Name: "j", UID: "j"}}
	for _, tc := range []struct {
		name    string
		claims  []held
		pods    []*corev1.Pod
		counted int64
		unknown int32
		partly  bool
		want    []quota.Holder
	}{
		{
			name: "a pod ends with all its claims", counted: 2,
			claims: []held{claim("c", 1, "p"), claim("d", 5, "p")}, pods: []*corev1.Pod{pod("p", 3)},
			want: []quota.Holder{{Pods: []string{"p"}, Priority: 3, Since: at(5), Charges: gpus(2)}},
		},
		{
			name: "pods that share a claim end together, as worthy as the worthiest", counted: 2,
			claims: []held{claim("c", 1, "p", "q"), claim("d", 2, "q"), claim("e", 3, "r")},
			pods:   []*corev1.Pod{pod("p", -5), pod("q", -2), pod("r", 0)},
			want: []quota.Holder{
				{Pods: []string{"p", "q"}, Priority: -2, Since: at(2), Charges: gpus(2)},
				{Pods: []string{"r"}, Since: at(3), Charges: gpus(1)},
			},
		},
		{
			name: "what is held by a pod that ends, has ended or is gone comes back by itself", counted: 3,
			claims: []held{claim("c", 1, "p"), claim("d", 2, "q"), claim("e", 3, "gone")},
			pods:   []*corev1.Pod{pod("p", 0, deleted), pod("q", 0, done)},
			want: []quota.Holder{
				{Since: at(1), Charges: gpus(1), Ending: true}, {Since: at(2), Charges: gpus(1), Ending: true},
				{Since: at(3), Charges: gpus(1), Ending: true},
			},
		},
		{
			name: "of pods that share, those that end already are not asked again", counted: 1,
			claims: []held{claim("c", 1, "p", "q")}, pods: []*corev1.Pod{pod("p", 0, deleted), pod("q", 0)},
			want: []quota.Holder{{Pods: []string{"q"}, Since: at(1), Charges: gpus(1)}},
		},
		{
			name: "a pod that was given a day to end holds as one that was not asked to", counted: 1,
			claims: []held{claim("c", 1, "p")}, pods: []*corev1.Pod{pod("p", 0, lingering)},
			want: []quota.Holder{{Pods: []string{"p"}, Since: at(1), Charges: gpus(1)}},
		},
		{name: "what something else than a pod uses is nobody's to end", claims: []held{elsewhere}, counted: 1},
		{
			name: "what the ledger counts of claims that are gone is about to be free", counted: 3,
			claims: []held{claim("c", 1, "p")}, pods: []*corev1.Pod{pod("p", 0)},
			want: []quota.Holder{{Charges: gpus(2), Ending: true}, {Pods: []string{"p"}, Since: at(1), Charges: gpus(1)}},
		},
		{
			name: "but not where a device is not known", counted: 3, unknown: 1,
			claims: []held{claim("c", 1, "p")}, pods: []*corev1.Pod{pod("p", 0)},
			want: []quota.Holder{{Pods: []string{"p"}, Since: at(1), Charges: gpus(1)}},
		},
		{
			name: "or not every claim was seen", counted: 3, partly: true,
			claims: []held{claim("c", 1, "p")}, pods: []*corev1.Pod{pod("p", 0)},
			want: []quota.Holder{{Pods: []string{"p"}, Since: at(1), Charges: gpus(1)}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := look{namespace: "team", claims: tc.claims, pods: map[types.UID]*corev1.Pod{}, complete: !tc.partly}
			for _, p := range tc.pods {
				l.pods[p.UID] = p
			}
			for i := range tc.want {
				tc.want[i].Namespace = "team"
			}
			got := l.holders(quota.Entry{Version: "1", Counted: gpus(tc.counted), Unknown: tc.unknown}, noon().Add(time.Minute))
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("holders (-want +got):\n%s", diff)
			}
		})
	}
}
