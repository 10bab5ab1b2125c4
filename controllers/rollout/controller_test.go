// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/controllers/rollout"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/rollouts"
	"github.com/sluice-gpu/sluice/test/builders"
)

const grace = 10 * time.Minute

// recorder keeps events as "kind reason".
type recorder struct{ events []string }

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	kind := "pool"
	if _, pool := regarding.(*v1alpha1.GPUPool); !pool {
		kind = "pod"
	}
	r.events = append(r.events, kind+" "+reason)
}

// world is one pool, named p, whose only GPU is to become another form while a pod holds it.
type world struct {
	t       *testing.T
	clock   *clocktesting.FakePassiveClock
	book    *orders.Book
	events  *recorder
	r       *rollout.Reconciler
	evicted []string // namespace/name uid
	refuse  error    // the answer to the next evictions
}

func start(t *testing.T, drain v1alpha1.DrainPolicy) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		book: orders.NewBook(), events: &recorder{},
	}
	before := builders.MakePool("p").Obj()
	decision := assign.Decision(before, builders.UUID("n", 0))
	decision.Taint, decision.TaintedSince = v1alpha1.TaintPoolChanged, ptr.To(metav1.NewTime(w.clock.Now()))
	claim := builders.Allocated("tenant", "n", "gpu-0", "10Gi")
	claim.Status.ReservedFor[0].UID = "7"
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			builders.MakePool("p").Mode(v1alpha1.SharingExclusive).Rollout("1", drain, int32(grace.Seconds())).Obj(),
			builders.MakeGPUNode("n", 1).Decided(decision).Obj(), builders.NodeIn("n", "p"), claim,
		).Build(),
		interceptor.Funcs{SubResourceCreate: w.evict})
	w.r, err = rollout.New(c, w.events, rollout.Options{Book: w.book, Clock: w.clock, Metrics: prometheus.NewRegistry()})
	if err != nil {
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

func (w *world) reconcile() (time.Duration, error) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "p"}})
	return result.RequeueAfter, err
}

func (w *world) want(evicted ...string) {
	w.t.Helper()
	if diff := cmp.Diff(evicted, w.evicted, cmpopts.EquateEmpty()); diff != "" {
		w.t.Fatalf("evicted (-want +got):\n%s", diff)
	}
}

func TestATenantIsEvictedWhenItsTimeIsOver(t *testing.T) {
	w := start(t, v1alpha1.DrainEvict)
	if again, err := w.reconcile(); err != nil || again != grace {
		t.Errorf("want to come back after %s, got %s, %v", grace, again, err)
	}
	w.want()
	w.clock.SetTime(w.clock.Now().Add(grace))
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	w.want("default/tenant 7")
	if diff := cmp.Diff([]string{"pod EvictedForRollout", "pool EvictedForRollout"}, w.events.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	w.want("default/tenant 7") // it has its own time to end
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	w.want("default/tenant 7", "default/tenant 7")
}

func TestATenantIsWaitedForWhereThePoolWaits(t *testing.T) {
	w := start(t, v1alpha1.DrainWait)
	w.clock.SetTime(w.clock.Now().Add(24 * time.Hour))
	if again, err := w.reconcile(); err != nil || again != 0 {
		t.Errorf("want to wait for news, got %s, %v", again, err)
	}
	w.want()
	plan, _ := w.book.Plan("p")
	if !strings.Contains(plan.Message, "held by default/tenant") || plan.Reason != v1alpha1.ReasonBlocked {
		t.Errorf("the plan does not say who is waited for: %s: %s", plan.Reason, plan.Message)
	}
}

func TestADisruptionBudgetIsRespectedAndTold(t *testing.T) {
	w := start(t, v1alpha1.DrainEvict)
	w.clock.SetTime(w.clock.Now().Add(grace))
	w.refuse = apierrors.NewTooManyRequests("budget", 0)
	if again, err := w.reconcile(); err != nil || again != 10*time.Second {
		t.Errorf("want to try again after 10s, got %s, %v", again, err)
	}
	plan, _ := w.book.Plan("p")
	if !strings.Contains(plan.Message, "PodDisruptionBudget does not let default/tenant be evicted") {
		t.Errorf("the plan does not say what is in the way: %s", plan.Message)
	}
	w.refuse = nil
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	w.want("default/tenant 7")
}

func TestAPodThatIsGoneIsNotInTheWay(t *testing.T) {
	for name, gone := range map[string]error{
		"it does not exist":        apierrors.NewNotFound(resourceapi.Resource("pods"), "tenant"),
		"another one has its name": apierrors.NewConflict(resourceapi.Resource("pods"), "tenant", nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, v1alpha1.DrainEvict)
			w.clock.SetTime(w.clock.Now().Add(grace))
			w.refuse = gone
			if _, err := w.reconcile(); err != nil {
				t.Errorf("want no error, got %v", err)
			}
			if len(w.events.events) != 0 {
				t.Errorf("want no event, got %v", w.events.events)
			}
		})
	}
}

func TestAPoolThatIsGoneIsForgotten(t *testing.T) {
	w := start(t, v1alpha1.DrainWait)
	w.book.Put(t.Context(), "q", rollouts.Plan{}, w.clock.Now())
	if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "q"}}); err != nil {
		t.Fatal(err)
	}
	if _, found := w.book.Plan("q"); found {
		t.Error("the plan of a pool that is gone is kept")
	}
}
