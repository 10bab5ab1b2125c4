// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

// lender is a quota of a cohort with a guarantee.
func lender(s scene, cohort, hard, guaranteed string) *builders.Quota {
	return builders.MakeQuota(s.namespace, "q").Pools("shared").Cohort(cohort).Hard(v1alpha1.QuotaGPUs, hard).Guaranteed(v1alpha1.QuotaGPUs, guaranteed)
}

// TestReclaim: what was lent comes back within the grace, from the newest of the lowest priority, and no more than is
// needed; whoever was evicted evicts nobody.
func TestReclaim(t *testing.T) {
	for _, tc := range []struct {
		name, cohort string
		queue        bool
	}{
		{name: "for a pod that waits in a queue", cohort: "queues", queue: true},
		{name: "for a pod of a namespace that refuses what is above its quota", cohort: "refuses"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			owner, borrower := newScene(t, tc.cohort), newScene(t, tc.cohort)
			build := lender(owner, tc.cohort, "3", "2")
			if tc.queue {
				build = build.Queue()
			}
			owned := owner.quota(build)
			borrowed := borrower.quota(lender(borrower, tc.cohort, "3", "1").Queue())
			kept, worthy, newest := borrower.pod("kept", ""), borrower.pod("worthy", "high"), borrower.pod("newest", "", lingers)
			borrower.scheduled(kept, worthy, newest)
			borrower.condition(borrowed, v1alpha1.QuotaBorrowing, metav1.ConditionTrue, "gpus 2 borrowed")

			since := time.Now()
			waiting := owner.pod("waiting", "")
			borrower.evicted(newest)
			borrower.event(newest, "QuotaReclaiming")
			borrower.event(newest, "QuotaReclaimed")
			owner.condition(owned, v1alpha1.QuotaReclaiming, metav1.ConditionTrue, "gpus 1 wanted")
			again := borrower.pod("again", "high") // as its controller would make it
			borrower.end(newest)
			owner.scheduled(waiting)
			t.Logf("the guarantee was met after %s", time.Since(since))
			owner.condition(owned, v1alpha1.QuotaReclaiming, metav1.ConditionFalse, "")
			borrower.says(again, "position 1")
			borrower.runs(kept, worthy)
			borrower.gated(again)
		})
	}
}

// lingers is a pod that ends only when the test says so.
func lingers(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, finalizer) }

// TestDisruptionBudgets: a budget sends reclaim to the next pod; where all are protected it waits, and says for what.
func TestDisruptionBudgets(t *testing.T) {
	owner, borrower := newScene(t, "guarded"), newScene(t, "guarded")
	owned := owner.quota(lender(owner, "guarded", "2", "2").Queue())
	borrower.quota(lender(borrower, "guarded", "3", "1"))
	guarded := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": pod.Name} }
	oldest, older, newest := borrower.pod("oldest", "", guarded), borrower.pod("older", "", guarded, lingers), borrower.pod("newest", "", guarded)
	borrower.scheduled(oldest, older, newest)
	for _, pod := range []*corev1.Pod{oldest, newest} {
		borrower.protect(pod)
	}
	borrower.works(oldest, older, newest)

	first := owner.pod("first", "")
	borrower.evicted(older)
	borrower.end(older)
	owner.scheduled(first)

	second := owner.pod("second", "")
	owner.event(second, "QuotaReclaimBlocked")
	owner.condition(owned, v1alpha1.QuotaReclaiming, metav1.ConditionTrue, "may not be evicted: Cannot evict pod as it would violate")
	borrower.runs(oldest, newest)
	owner.gated(second)
}

// protect forbids to evict a pod.
func (s scene) protect(pod *corev1.Pod) {
	s.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod.Name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		},
	}
	if err := admin.Create(s.Context(), budget); err != nil {
		s.Fatal(err)
	}
	s.wait("the disruption budget is counted", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget)
		return budget.Status.ObservedGeneration > 0, err
	})
}

// works says of pods what kubelet would once they run: a disruption budget holds only for those that are ready.
func (s scene) works(pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		before := pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		if err := admin.Status().Patch(s.Context(), pod, client.StrategicMergeFrom(before)); err != nil {
			s.Fatal(err)
		}
	}
	s.wait("the disruption budgets count the pods", func(ctx context.Context) (bool, error) {
		var budgets policyv1.PodDisruptionBudgetList
		if err := admin.List(ctx, &budgets, client.InNamespace(s.namespace)); err != nil {
			return false, err
		}
		for _, budget := range budgets.Items {
			if budget.Status.CurrentHealthy != 1 {
				return false, nil
			}
		}
		return true, nil
	})
}

// condition waits until a condition of a quota is so and has these words.
func (s scene) condition(q *v1alpha1.GPUQuota, kind string, status metav1.ConditionStatus, words string) {
	s.Helper()
	s.wait(kind+" of the quota is "+string(status)+" with "+words, func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(q), q)
		c := meta.FindStatusCondition(q.Status.Conditions, kind)
		return c != nil && c.Status == status && strings.Contains(c.Message, words), err
	})
}
