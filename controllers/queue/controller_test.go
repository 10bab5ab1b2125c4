// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/tenants"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// gathered is what the controller is to see.
type gathered struct{ state tenants.State }

var _ Gatherer = &gathered{}

func (g *gathered) Gather(context.Context, string, time.Time) (tenants.State, error) {
	return g.state, nil
}

// recorder keeps events as "reason: note".
type recorder struct{ events []string }

var _ eventRecorder = &recorder{}

func (r *recorder) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.events = append(r.events, reason+": "+fmt.Sprintf(note, args...))
}

// world is a queue of one GPU.
type world struct {
	*testing.T
	client   client.Client
	seen     *gathered
	recorder *recorder
	clock    *clocktesting.FakeClock
	queue    *Reconciler
}

func newWorld(t *testing.T, pods ...*corev1.Pod) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	built := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Pod{})
	for _, pod := range pods {
		built = built.WithObjects(pod)
	}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, client: built.Build(), seen: &gathered{}, recorder: &recorder{}, clock: clocktesting.NewFakeClock(noon())}
	w.queue = &Reconciler{
		Client: w.client, Tenants: w.seen, Recorder: w.recorder, Clock: w.clock, Counts: NewCounts(nil), metrics: m,
	}
	return w
}

// holding sees so many GPUs held of one, and the pods that wait.
func (w *world) holding(gpus int64, waiting ...*corev1.Pod) {
	w.Helper()
	ledger := quota.NewLedger("namespace-team")
	ledger.Namespaces["team"] = quota.Entry{Version: "1", Counted: quota.Charges{"p": {"gpus": gpus}}}
	state := tenants.State{
		Domain: &quota.Domain{Ledger: ledger.Name, Quotas: []quota.Quota{{Namespace: "team", Name: "q", Hard: quota.Amounts{"gpus": 1}, Queue: true}}},
		Ledger: ledger,
	}
	for _, pod := range waiting {
		in := inState(w.pod(pod.Name), "")
		in.Line.Cost = quota.Charges{"p": {"gpus": 1}}
		in.Line.Since = pod.CreationTimestamp.Time
		state.Waiting = append(state.Waiting, in)
	}
	w.seen.state = state
	if _, err := w.queue.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "namespace-team"}}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{}
	if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: "team", Name: name}, pod); err != nil {
		w.Fatal(err)
	}
	return pod
}

func (w *world) wantEvents(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.recorder.events); diff != "" {
		w.Errorf("events (-want +got):\n%s", diff)
	}
}

func gated(name string, more ...string) *corev1.Pod {
	pod := named(name)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.QuotaGate}}
	for _, gate := range more {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return pod
}

func TestAPodThatFindsRoomAtOnceIsOnlyLetGo(t *testing.T) {
	a := gated("a", "example.com/other")
	w := newWorld(t, a)
	w.holding(0, a)
	got := w.pod("a")
	if diff := cmp.Diff([]corev1.PodSchedulingGate{{Name: "example.com/other"}}, got.Spec.SchedulingGates); diff != "" {
		t.Errorf("gates (-want +got):\n%s", diff)
	}
	if len(got.Status.Conditions) > 0 {
		t.Errorf("want no condition, got %v", got.Status.Conditions)
	}
	w.wantEvents()
}

func TestAPodWaitsAndIsLetGo(t *testing.T) {
	a := gated("a")
	w := newWorld(t, a)
	w.holding(1, a)
	c := conditionOf(w.pod("a"))
	if c == nil || c.Status != corev1.ConditionFalse || !c.LastTransitionTime.Time.Equal(noon()) {
		t.Fatalf("want a condition that says since when it waits, got %v", c)
	}
	if n := w.queue.Counts.Of("team"); n != 1 {
		t.Errorf("want 1 waiting, got %d", n)
	}
	w.clock.Step(10 * time.Second)
	w.holding(0, a)
	got := w.pod("a")
	if quota.Gated(got) || conditionOf(got).Status != corev1.ConditionTrue {
		t.Errorf("want it let go, got gates %v and %v", got.Spec.SchedulingGates, conditionOf(got))
	}
	if n := w.queue.Counts.Of("team"); n != 0 {
		t.Errorf("want nobody waiting, got %d", n)
	}
	w.wantEvents("QuotaQueued: "+c.Message, "QuotaReleased: let go: there is room in the quota")
}

func TestAPodThatTheCacheStillShowsGatedKeepsItsRoom(t *testing.T) {
	a, b := gated("a"), gated("b")
	w := newWorld(t, a, b)
	w.holding(0, a)
	stale := w.seen.state.Waiting[0]
	state := w.seen.state
	in := inState(w.pod("b"), "")
	in.Line.Cost, in.Line.Priority = quota.Charges{"p": {"gpus": 1}}, 9
	state.Waiting = []tenants.Pod{in, stale}
	w.seen.state = state
	if _, err := w.queue.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "namespace-team"}}); err != nil {
		t.Fatal(err)
	}
	if !quota.Gated(w.pod("b")) {
		t.Error("b was let go into the room that a was given")
	}
}

func TestAPodThatIsGoneHoldsUpNobody(t *testing.T) {
	a, b := gated("a"), gated("b")
	w := newWorld(t, a, b)
	w.holding(1, a, b)
	if err := w.client.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.seen.state.Ledger.Namespaces["team"] = quota.Entry{Version: "2"}
	if _, err := w.queue.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "namespace-team"}}); err != nil {
		t.Fatal(err)
	}
	if quota.Gated(w.pod("a")) {
		t.Error("a still waits")
	}
}
