// SPDX-License-Identifier: Apache-2.0

package unseen

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// told are the events of a test.
type told []string

func (t *told) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) { *t = append(*t, reason) }

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// pod is a pod that a workload made a minute ago, which waits for limits of Sluice's.
func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "tenant", UID: "1", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "tenant", UID: "2", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse("2Gi")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	change(p)
	return p
}

func TestLook(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*corev1.Pod)
		evicted int
		want    told
	}{
		{name: "a workload's pod is evicted", change: func(*corev1.Pod) {}, evicted: 2, want: told{ReasonMadeAgain}},
		{
			name: "the owner of a pod of nobody's is told, once", want: told{ReasonNotAdmitted},
			change: func(p *corev1.Pod) { p.OwnerReferences = nil },
		},
		{
			name:   "a pod that admission changed is left alone",
			change: func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.RequestLabel: "x"} },
		},
		{name: "a new pod is left alone", change: func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) }},
		{name: "a pod on a node is left alone", change: func(p *corev1.Pod) { p.Spec.NodeName = "node" }},
		{name: "a pod without such limits is left alone", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }},
		{
			name: "limits of an init container count", evicted: 2, want: told{ReasonMadeAgain},
			change: func(p *corev1.Pod) { p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			evicted := 0
			c := fake.NewClientBuilder().WithObjects(pod(tc.change)).
				WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
					p, ok := o.(*corev1.Pod)
					if !ok {
						return nil
					}
					return []string{p.Spec.NodeName}
				}).
				WithInterceptorFuncs(interceptor.Funcs{
					SubResourceCreate: func(_ context.Context, _ client.Client, name string, _, _ client.Object, _ ...client.SubResourceCreateOption) error {
						if name != "eviction" {
							return fmt.Errorf("created %s", name)
						}
						evicted++
						return nil
					},
				}).Build()
			var got told
			looker := New(c, c, &got, clocktesting.NewFakeClock(now))
			for range 2 {
				if err := looker.Look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events differ (-want +got):\n%s", diff)
			}
			if evicted != tc.evicted {
				t.Errorf("evicted %d times in two looks, want %d", evicted, tc.evicted)
			}
		})
	}
}
