// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// patience bounds every wait; a wait that succeeds is far shorter.
const patience = 45 * time.Second

// scene is what one test works with: a namespace that goes away with the test.
type scene struct {
	*testing.T
	namespace string
}

func newScene(t *testing.T, labels ...string) scene {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "quota-", Labels: map[string]string{}}}
	for i := 0; i+1 < len(labels); i += 2 {
		namespace.Labels[labels[i]] = labels[i+1]
	}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s := scene{T: t, namespace: namespace.Name}
	s.Cleanup(func() { s.remove(namespace) })
	return s
}

// remove takes the namespace away, and waits until nothing of it is allocated, so that the next test finds room.
func (s scene) remove(namespace *corev1.Namespace) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // controllers rest after the API server was away
	defer cancel()
	// What a test allocated itself has no pod whose end frees it.
	if err := admin.DeleteAllOf(ctx, &resourceapi.ResourceClaim{}, client.InNamespace(s.namespace)); err != nil {
		s.Error(err)
	}
	if err := s.end(ctx); err != nil {
		s.Error(err)
	}
	if err := admin.Delete(ctx, namespace); client.IgnoreNotFound(err) != nil {
		s.Error(err)
	}
}

// release ends all pods and waits until nothing is allocated.
func (s scene) release() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := s.end(ctx); err != nil {
		s.Fatal(err)
	}
}

func (s scene) end(ctx context.Context) error {
	err := admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.namespace), client.GracePeriodSeconds(0))
	if err != nil {
		return fmt.Errorf("ending the pods of %s: %w", s.namespace, err)
	}
	return stack.Poll(ctx, "nothing of "+s.namespace+" is allocated", func(ctx context.Context) (bool, error) {
		allocated, err := s.allocations(ctx)
		return len(allocated) == 0, err
	})
}

// allocations are the allocated claims of the scene.
func (s scene) allocations(ctx context.Context) ([]resourceapi.ResourceClaim, error) {
	var claims resourceapi.ResourceClaimList
	if err := admin.List(ctx, &claims, client.InNamespace(s.namespace)); err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	var allocated []resourceapi.ResourceClaim
	for _, claim := range claims.Items {
		if claim.Status.Allocation != nil {
			allocated = append(allocated, claim)
		}
	}
	return allocated, nil
}

// create makes an object in the scene's namespace.
func (s scene) create(objects ...client.Object) {
	s.Helper()
	for _, object := range objects {
		object.SetNamespace(s.namespace)
		if err := admin.Create(s.Context(), object); err != nil {
			s.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// admitted makes an object as soon as no quota refuses it any more: a webhook hears of what was changed a moment later, and
// errs on the quota's side until then.
func (s scene) admitted(object client.Object) {
	s.Helper()
	object.SetNamespace(s.namespace)
	s.wait(fmt.Sprintf("%T %s is admitted", object, object.GetName()), func(ctx context.Context) (bool, error) {
		err := admin.Create(ctx, object)
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// quota makes quotas and waits until they are held.
func (s scene) quota(quotas ...*v1alpha1.GPUQuota) {
	s.Helper()
	for _, q := range quotas {
		s.create(q)
	}
	for _, q := range quotas {
		s.wait("quota "+q.Name+" is held", func(ctx context.Context) (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(q), q)
			return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.QuotaReady) && q.Status.ObservedGeneration == q.Generation, err
		})
	}
}

// wait polls until done says so.
func (s scene) wait(what string, done func(context.Context) (bool, error)) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		s.Fatal(err)
	}
}

// allocated waits until a number of claims of the scene is allocated.
func (s scene) allocated(want int) []resourceapi.ResourceClaim {
	s.Helper()
	var got []resourceapi.ResourceClaim
	s.wait(fmt.Sprintf("%d claims of %s are allocated", want, s.namespace), func(ctx context.Context) (bool, error) {
		var err error
		got, err = s.allocations(ctx)
		return len(got) == want, err
	})
	return got
}

// scheduled waits until pods have a node.
func (s scene) scheduled(pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		s.wait("pod "+pod.Name+" has a node", func(ctx context.Context) (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			return pod.Spec.NodeName != "", err
		})
	}
}

// held waits until the scheduler has said on a pod why the quota holds it.
func (s scene) held(pod *corev1.Pod, words ...string) {
	s.Helper()
	var last string
	s.wait("the scheduler says on pod "+pod.Name+" what the quota said", func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		if pod.Spec.NodeName != "" {
			return false, fmt.Errorf("pod %s got node %s: %s", pod.Name, pod.Spec.NodeName, last)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled {
				last = condition.Message
			}
		}
		return contains(last, words), nil
	})
}

func contains(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// used waits until the status of a quota says that amounts are used.
func (s scene) used(q *v1alpha1.GPUQuota, want quota.Amounts) {
	s.Helper()
	var got quota.Amounts
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	err := stack.Poll(ctx, fmt.Sprintf("quota %s says that %v is used", q.Name, want), func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return false, err
		}
		got = quota.FromAPI(q.Status.Used)
		for name, value := range want {
			if got[name] != value {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		s.Fatalf("%v: used are %v, summary %q", err, got, q.Status.Summary)
	}
}

// refused tries to create something and wants a refusal by a quota that has these words.
func (s scene) refused(c client.Client, object client.Object, words ...string) {
	s.Helper()
	object.SetNamespace(s.namespace)
	err := c.Create(s.Context(), object)
	switch {
	case err == nil:
		s.Errorf("%T %s was admitted", object, object.GetName())
	case !apierrors.IsForbidden(err) || !contains(err.Error(), words):
		s.Errorf("%T %s was refused with %v, want Forbidden with %q", object, object.GetName(), err, words)
	}
}
