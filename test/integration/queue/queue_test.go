// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

// TestOrder: the highest priority first, then the oldest, and nobody says less than where it stands.
func TestOrder(t *testing.T) {
	s := newScene(t, "")
	q := s.quota(builders.MakeQuota(s.namespace, "q").Hard(v1alpha1.QuotaGPUs, "1").Queue())
	first := s.pod("first", "")
	s.scheduled(first)
	plain := s.pod("plain", "")
	s.says(plain, "AboveHard position 1: gpus: 1 asked, 1 used")
	s.event(plain, "QuotaQueued")
	low, high := s.pod("low", "low"), s.pod("high", "high")
	s.says(high, "AboveHard position 1: ")
	s.says(low, "BehindOthers position 2: ")
	s.summary(q, "gpus 1/1 · waiting 3")
	for _, step := range []struct{ ends, goes *corev1.Pod }{{first, high}, {high, low}, {low, plain}} {
		s.end(step.ends)
		s.scheduled(step.goes)
	}
	s.event(high, "QuotaReleased")
	s.summary(q, "gpus 1/1")
}

// TestAtOnce: where there is room nobody is told that it waits, and it takes no time to speak of.
func TestAtOnce(t *testing.T) {
	const pods = 20
	s := newScene(t, "")
	s.quota(builders.MakeQuota(s.namespace, "q").Hard(v1alpha1.QuotaGPUs, "100").Queue())
	var slowest time.Duration
	for i := range pods {
		pod := s.pod(fmt.Sprintf("p-%d", i), "")
		since := time.Now()
		s.wait("the gate is lifted", func(ctx context.Context) (bool, error) {
			err := s.get(ctx, pod)
			return !quota.Gated(pod), err
		})
		slowest = max(slowest, time.Since(since))
		s.scheduled(pod)
		for _, c := range pod.Status.Conditions {
			if c.Type == v1alpha1.PodQuotaReserved {
				t.Errorf("pod %s was told that it waits: %s", pod.Name, c.Message)
			}
		}
	}
	t.Logf("the slowest of %d gates was lifted after %s", pods, slowest)
}

// TestTheQueueIsNeverAboveTheQuota: of many pods as many run as may, and the others follow as they end.
func TestTheQueueIsNeverAboveTheQuota(t *testing.T) {
	const pods, allowed = 12, 3
	s := newScene(t, "")
	q := s.quota(builders.MakeQuota(s.namespace, "q").Hard(v1alpha1.QuotaMemory, "6Gi").Queue())
	var all []*corev1.Pod
	for i := range pods {
		all = append(all, s.pod(fmt.Sprintf("p-%d", i), ""))
	}
	ended := 0
	for ended < pods {
		s.wait("as many run as may", func(ctx context.Context) (bool, error) {
			n, err := s.held(ctx)
			if n > allowed {
				return false, fmt.Errorf("%d claims are allocated, %d are allowed", n, allowed)
			}
			return n == min(allowed, pods-ended), err
		})
		for _, pod := range all {
			if err := s.get(t.Context(), pod); err == nil && pod.Spec.NodeName != "" {
				s.end(pod)
				ended++
				break
			}
		}
	}
	s.summary(q, "memory 0/6Gi")
}

// TestWhereNobodyQueuesAnyMoreGatesAreLifted: a gate without a quota that has pods wait would keep them for ever.
func TestWhereNobodyQueuesAnyMoreGatesAreLifted(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(ctx context.Context, q *v1alpha1.GPUQuota) error
	}{
		{name: "the quota is deleted", end: func(ctx context.Context, q *v1alpha1.GPUQuota) error { return admin.Delete(ctx, q) }},
		{name: "the quota refuses from now on", end: func(ctx context.Context, q *v1alpha1.GPUQuota) error {
			before := q.DeepCopy()
			q.Spec.Enforcement = v1alpha1.EnforcementReject
			return admin.Patch(ctx, q, client.MergeFrom(before))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t, "")
			q := s.quota(builders.MakeQuota(s.namespace, "q").Hard(v1alpha1.QuotaGPUs, "0").Queue())
			pod := builders.MakePod("p").Namespace(s.namespace).Obj()
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.QuotaGate}}
			if err := admin.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if err := tc.end(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			s.wait("the gate is lifted", func(ctx context.Context) (bool, error) {
				err := s.get(ctx, pod)
				return !quota.Gated(pod), err
			})
		})
	}
}

// TestAnotherReplicaGoesOn: the queue is where it was when its server is stopped.
func TestAnotherReplicaGoesOn(t *testing.T) {
	s := newScene(t, "")
	s.quota(builders.MakeQuota(s.namespace, "q").Hard(v1alpha1.QuotaGPUs, "1").Queue())
	first := s.pod("first", "")
	s.scheduled(first)
	plain, high := s.pod("plain", ""), s.pod("high", "high")
	s.says(plain, "position")
	s.says(high, "position 1")
	leader := cluster.Leader(t.Context())
	if err := cluster.Stop(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Start(context.WithoutCancel(t.Context()), leader); err != nil {
			t.Error(err)
		}
	})
	s.end(first)
	s.scheduled(high)
	s.gated(plain)
}
