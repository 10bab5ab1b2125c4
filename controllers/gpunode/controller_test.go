// SPDX-License-Identifier: Apache-2.0

package gpunode_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/gpunode"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/controllers/rollout"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/test/builders"
)

const settle = 10 * time.Second

// world is one node, named n, under a reconciler whose time the test moves.
type world struct {
	t     *testing.T
	c     client.Client
	clock *clocktesting.FakePassiveClock
	r     *gpunode.Reconciler
	// rollouts leave their orders where r reads them.
	rollouts *rollout.Reconciler
	book     *orders.Book
	events   *events.FakeRecorder
}

// start builds a world. live, where given, is what the API server knows and the cache does not.
func start(t *testing.T, live client.Reader, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	w.c = fakeClient(t, append(objects, builders.NodeIn("n", "p"))...)
	if live == nil {
		live = w.c
	}
	w.book, w.events = orders.NewBook(), events.NewFakeRecorder(100)
	w.r = gpunode.New(w.c, live, gpunode.Options{DrainSettle: settle, Book: w.book, Clock: w.clock})
	var err error
	w.rollouts, err = rollout.New(w.c, w.events, rollout.Options{Book: w.book, Clock: w.clock, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func fakeClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.GPUNode{}).
		WithIndex(&resourceapi.ResourceClaim{}, view.ClaimsByNode, func(o client.Object) []string {
			claim, ok := o.(*resourceapi.ResourceClaim)
			if !ok {
				return nil
			}
			return assign.AllocatedNodes(claim)
		}).Build()
}

// reconcile plans the rollouts, runs the reconciler once and returns when it wants to come back.
func (w *world) reconcile() time.Duration {
	w.t.Helper()
	w.plan()
	result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}})
	if err != nil {
		w.t.Fatalf("reconcile: %v", err)
	}
	return result.RequeueAfter
}

// plan plans the rollout of every pool.
func (w *world) plan() {
	w.t.Helper()
	pools := &v1alpha1.GPUPoolList{}
	if err := w.c.List(w.t.Context(), pools); err != nil {
		w.t.Fatalf("listing pools: %v", err)
	}
	for _, pool := range pools.Items {
		if _, err := w.rollouts.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: pool.Name}}); err != nil {
			w.t.Fatalf("planning the rollout of %s: %v", pool.Name, err)
		}
	}
}

// publish lets the agent apply what was decided.
func (w *world) publish() {
	w.t.Helper()
	node := w.node()
	builders.Publish(node)
	if err := w.c.Status().Update(w.t.Context(), node); err != nil {
		w.t.Fatalf("the agent's report: %v", err)
	}
}

func (w *world) node() *v1alpha1.GPUNode {
	w.t.Helper()
	node := &v1alpha1.GPUNode{}
	if err := w.c.Get(w.t.Context(), types.NamespacedName{Name: "n"}, node); err != nil {
		w.t.Fatalf("reading the GPUNode: %v", err)
	}
	return node
}

// forms are the decisions in short.
func (w *world) forms() []string {
	w.t.Helper()
	var forms []string
	for _, d := range w.node().Decisions() {
		form := d.Pool + " " + string(d.Sharing)
		if d.Taint != "" {
			form += " " + string(d.Taint)
		}
		forms = append(forms, form)
	}
	return forms
}

func (w *world) want(forms ...string) {
	w.t.Helper()
	if diff := cmp.Diff(forms, w.forms(), cmpopts.EquateEmpty()); diff != "" {
		w.t.Fatalf("decisions (-want +got):\n%s", diff)
	}
}

func (w *world) update(object client.Object) {
	w.t.Helper()
	if err := w.c.Update(w.t.Context(), object); err != nil {
		w.t.Fatalf("updating: %v", err)
	}
}

func TestNewGPUsAreDecidedAtOnce(t *testing.T) {
	w := start(t, nil, builders.MakeGPUNode("n", 2).Obj(), builders.MakePool("p").Obj())
	w.reconcile()
	w.want("p Software", "p Software")
}

func TestANodeThatIsGoneIsLeftAlone(t *testing.T) {
	w := start(t, nil)
	w.reconcile()
}

func TestAGPUChangesHandsAfterItsTaintHasSettled(t *testing.T) {
	w := start(t, nil, builders.MakeGPUNode("n", 1).Obj(), builders.MakePool("p").Obj())
	w.reconcile()
	w.publish()

	pool := &v1alpha1.GPUPool{}
	if err := w.c.Get(t.Context(), types.NamespacedName{Name: "p"}, pool); err != nil {
		t.Fatal(err)
	}
	pool.Spec.Sharing.Mode = v1alpha1.SharingExclusive
	w.update(pool)
	w.reconcile()
	w.want("p Software PoolChanged")

	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.reconcile()
	w.want("p Software PoolChanged") // the agent has not published the taint: time does not count

	w.publish()
	if again := w.reconcile(); again != settle {
		t.Errorf("want to come back after %s, got %s", settle, again)
	}
	w.clock.SetTime(w.clock.Now().Add(settle - time.Second))
	if again := w.reconcile(); again != time.Second {
		t.Errorf("want to come back after 1s, got %s", again)
	}
	w.want("p Software PoolChanged")
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.reconcile()
	w.want("p Exclusive PoolChanged") // until the agent offers the new form
	w.publish()
	w.reconcile()
	w.want("p Exclusive")
}

func TestAGPUWithATenantWaitsHoweverLong(t *testing.T) {
	claim := builders.Allocated("tenant", "n", "gpu-0", "10Gi")
	w := start(t, nil, builders.MakeGPUNode("n", 2).Obj(), builders.MakePool("p").Obj(), claim)
	w.reconcile()
	w.publish()
	if err := w.c.Delete(t.Context(), builders.MakePool("p").Obj()); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.publish()
	w.reconcile()
	w.clock.SetTime(w.clock.Now().Add(settle))
	w.reconcile()
	w.want("p Software PoolDeleted") // the GPU without a tenant is gone, the other one stays
	if got := w.node().Decisions()[0].UUID; got != builders.UUID("n", 0) {
		t.Errorf("want the GPU with the tenant kept, got %s", got)
	}

	if err := w.c.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	again := w.reconcile() // the API server was asked a moment ago, before the tenant was gone
	w.want("p Software PoolDeleted")
	w.clock.SetTime(w.clock.Now().Add(again))
	w.reconcile()
	w.want()
}

func TestWhatTheCacheDoesNotKnowKeepsAGPU(t *testing.T) {
	live := fakeClient(t, builders.Allocated("tenant", "n", "gpu-0", "10Gi"))
	w := start(t, live, builders.MakeGPUNode("n", 1).Obj(), builders.MakePool("p").Obj())
	w.reconcile()
	w.publish()
	if err := w.c.Delete(t.Context(), builders.MakePool("p").Obj()); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.publish()
	w.reconcile()
	w.clock.SetTime(w.clock.Now().Add(settle))
	w.reconcile()
	w.want("p Software PoolDeleted")
}

func TestATaintGoesWhenItsReasonGoes(t *testing.T) {
	w := start(t, nil, builders.MakeGPUNode("n", 1).Obj(), builders.MakePool("p").Obj())
	w.reconcile()
	w.update(builders.NodeIn("n", "elsewhere"))
	w.reconcile()
	w.want("p Software NotSelected")
	w.update(builders.NodeIn("n", "p"))
	w.reconcile()
	w.want("p Software")
}
