// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// finalizer keeps a pod that was asked to end.
const finalizer = "example.com/lingers"

// patience bounds every wait; a wait that succeeds is far shorter.
const patience = 45 * time.Second

// scene is what one test works with in one namespace, which goes away with the test.
type scene struct {
	*testing.T
	namespace string
}

func newScene(t *testing.T, cohort string) scene {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "queue-", Labels: map[string]string{"cohort": cohort}}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s := scene{T: t, namespace: namespace.Name}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.namespace), client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
		if err := admin.Delete(ctx, namespace); err != nil {
			t.Error(err)
		}
	})
	return s
}

// quota makes a quota of gpus and waits until it is held.
func (s scene) quota(build *builders.Quota) *v1alpha1.GPUQuota {
	s.Helper()
	q := build.Obj()
	q.Namespace = s.namespace
	if err := admin.Create(s.Context(), q); err != nil {
		s.Fatal(err)
	}
	s.wait("the quota is held", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(q), q)
		return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.QuotaReady), err
	})
	return q
}

// pod makes a pod that asks for a share of a GPU, of a priority class or none.
func (s scene) pod(name, priority string, options ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	pod := builders.MakePod(name).Namespace(s.namespace).Memory("2Gi").Obj()
	pod.Spec.PriorityClassName = priority
	for _, option := range options {
		option(pod)
	}
	if err := admin.Create(s.Context(), pod); err != nil {
		s.Fatal(err)
	}
	return pod
}

func (s scene) wait(what string, done func(context.Context) (bool, error)) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		s.Fatal(err)
	}
}

// get reads pods again.
func (s scene) get(ctx context.Context, pod *corev1.Pod) error {
	return admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)
}

// scheduled waits until pods have a node.
func (s scene) scheduled(pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		s.wait("pod "+pod.Name+" has a node", func(ctx context.Context) (bool, error) {
			err := s.get(ctx, pod)
			return pod.Spec.NodeName != "", err
		})
	}
}

// says waits until a pod's condition says that it waits, with these words.
func (s scene) says(pod *corev1.Pod, words string) {
	s.Helper()
	var got string
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	err := stack.Poll(ctx, "pod "+pod.Name+" says that it waits", func(ctx context.Context) (bool, error) {
		if err := s.get(ctx, pod); err != nil {
			return false, err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1alpha1.PodQuotaReserved && c.Status == corev1.ConditionFalse {
				got = c.Reason + " " + c.Message
			}
		}
		return strings.Contains(got, words), nil
	})
	if err != nil {
		s.Fatalf("%v: want %q in %q", err, words, got)
	}
}

// gated wants pods to wait still.
func (s scene) gated(pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		if err := s.get(s.Context(), pod); err != nil {
			s.Fatal(err)
		}
		if !quota.Gated(pod) {
			s.Errorf("pod %s was let go", pod.Name)
		}
	}
}

// end ends a pod as its kubelet would.
func (s scene) end(pod *corev1.Pod) {
	s.Helper()
	if err := admin.Delete(s.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		s.Fatal(err)
	}
	if len(pod.Finalizers) == 0 {
		return
	}
	nothing := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := admin.Patch(s.Context(), pod, nothing); err != nil {
		s.Fatal(err)
	}
}

// evicted waits until a pod was asked to end.
func (s scene) evicted(pod *corev1.Pod) {
	s.Helper()
	s.wait("pod "+pod.Name+" is evicted", func(ctx context.Context) (bool, error) {
		err := s.get(ctx, pod)
		return !pod.DeletionTimestamp.IsZero(), err
	})
}

// runs wants pods not to have been asked to end.
func (s scene) runs(pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		if err := s.get(s.Context(), pod); err != nil {
			s.Fatal(err)
		}
		if !pod.DeletionTimestamp.IsZero() {
			s.Errorf("pod %s was evicted", pod.Name)
		}
	}
}

// event waits for an event on a pod.
func (s scene) event(pod *corev1.Pod, reason string) {
	s.Helper()
	s.wait(fmt.Sprintf("pod %s has the event %s", pod.Name, reason), func(ctx context.Context) (bool, error) {
		events, err := s.events(ctx, pod)
		return slices.Contains(events, reason), err
	})
}

func (s scene) events(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	var list eventsv1.EventList
	if err := admin.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	var reasons []string
	for _, event := range list.Items {
		if event.Regarding.UID == pod.UID {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons, nil
}

// held is how many claims of the namespace are allocated.
func (s scene) held(ctx context.Context) (int, error) {
	var claims resourceapi.ResourceClaimList
	if err := admin.List(ctx, &claims, client.InNamespace(s.namespace)); err != nil {
		return 0, fmt.Errorf("listing claims: %w", err)
	}
	n := 0
	for _, claim := range claims.Items {
		if claim.Status.Allocation != nil {
			n++
		}
	}
	return n, nil
}

// summary waits until a quota's line for people is this.
func (s scene) summary(q *v1alpha1.GPUQuota, want string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	err := stack.Poll(ctx, "the quota says "+want, func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(q), q)
		return q.Status.Summary == want, err
	})
	if err != nil {
		s.Fatalf("%v: it says %q", err, q.Status.Summary)
	}
}
