// SPDX-License-Identifier: Apache-2.0

package violations_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/controllers/violations"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/test/builders"
)

// recorder keeps the reasons of events.
type recorder struct{ reasons []string }

func (r *recorder) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	r.reasons = append(r.reasons, reason)
}

// world is a node on which a pod violates its limit, in a pool that has it evicted.
type world struct {
	t       *testing.T
	events  *recorder
	r       *violations.Reconciler
	evicted []string
	refuse  error
}

var found = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func start(t *testing.T, change func(pod *corev1.Pod)) *world {
	t.Helper()
	w := &world{t: t, events: &recorder{}}
	claim := builders.Allocated("tenant", "n", "gpu-0", "10Gi")
	claim.UID, claim.Status.ReservedFor[0].UID = "c", "7"
	node := builders.MakeGPUNode("n", 1).Decided(v1alpha1.GPUDecision{UUID: builders.UUID("n", 0), OnViolation: v1alpha1.ViolationEvict}).Obj()
	node.Status.Violations = []v1alpha1.Violation{{
		ClaimUID: "c", Result: ptr.To(int32(0)), GPU: builders.UUID("n", 0), Action: v1alpha1.ViolationEvict,
		Reason: v1alpha1.ReasonUnregisteredProcess, Since: ptr.To(metav1.NewTime(found)),
	}}
	pod := builders.MakePod("tenant").Obj()
	pod.UID, pod.Spec.NodeName, pod.CreationTimestamp = "7", "n", metav1.NewTime(found.Add(-time.Minute))
	change(pod)
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithObjects(node, claim, pod).
			WithIndex(&resourceapi.ResourceClaim{}, view.ClaimsByNode, func(o client.Object) []string {
				claim, ok := o.(*resourceapi.ResourceClaim)
				if !ok {
					return nil
				}
				return assign.AllocatedNodes(claim)
			}).Build(),
		interceptor.Funcs{SubResourceCreate: w.evict})
	if w.r, err = violations.New(c, c, w.events, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	return w
}

// evict is what the API server does with an eviction.
func (w *world) evict(_ context.Context, _ client.Client, name string, pod, body client.Object, _ ...client.SubResourceCreateOption) error {
	eviction, ok := body.(*policyv1.Eviction)
	if name != "eviction" || !ok {
		w.t.Fatalf("want an eviction, got %s %T", name, body)
	}
	if w.refuse != nil {
		return w.refuse
	}
	w.evicted = append(w.evicted, pod.GetNamespace()+"/"+pod.GetName()+" "+string(*eviction.DeleteOptions.Preconditions.UID))
	return nil
}

func (w *world) reconcile() time.Duration {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return result.RequeueAfter
}

func TestPodsThatViolateTheirLimitsAreEvicted(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(pod *corev1.Pod)
		want   []string
	}{
		{"a pod of the node", func(*corev1.Pod) {}, []string{"default/tenant 7"}},
		{"a pod of another node", func(p *corev1.Pod) { p.Spec.NodeName = "m" }, nil},
		{"another pod of its name", func(p *corev1.Pod) { p.UID = "8" }, nil},
		{"a pod that came later", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(found.Add(time.Minute)) }, nil},
		{"a pod that has ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, nil},
		{"a pod that is ending", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.NewTime(found)), []string{"example.com/x"}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t, tc.change)
			w.reconcile()
			if diff := cmp.Diff(tc.want, w.evicted, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("evicted (-want +got):\n%s", diff)
			}
			if len(w.events.reasons) != len(tc.want) {
				t.Errorf("events %v", w.events.reasons)
			}
		})
	}
}

func TestADisruptionBudgetIsRespectedAndToldOnce(t *testing.T) {
	w := start(t, func(*corev1.Pod) {})
	w.refuse = apierrors.NewTooManyRequests("budget", 0)
	for range 3 {
		if again := w.reconcile(); again != 10*time.Second {
			t.Errorf("want to try again after 10s, got %s", again)
		}
	}
	w.refuse = nil
	w.reconcile()
	if diff := cmp.Diff([]string{"ViolationEvictionBlocked", "EvictedForViolation"}, w.events.reasons); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
