// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/controllers/pool"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/test/builders"
)

// recorder keeps events as "type reason".
type recorder struct{ events []string }

func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, _, _ string, _ ...any) {
	r.events = append(r.events, kind+" "+reason)
}

// take returns the events since the last call.
func (r *recorder) take() []string {
	events := r.events
	r.events = nil
	return events
}

// world is one pool, named p, under a reconciler.
type world struct {
	t            *testing.T
	c            client.Client
	r            *pool.Reconciler
	events       *recorder
	metrics      *prometheus.Registry
	statusWrites int
	failStatus   error
}

func start(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, events: &recorder{}, metrics: prometheus.NewRegistry()}
	w.c = interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithStatusSubresource(&v1alpha1.GPUPool{}, &v1alpha1.GPUNode{}).Build(),
		interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if w.failStatus != nil {
					return w.failStatus
				}
				w.statusWrites++
				return c.SubResource(name).Patch(ctx, o, p, opts...)
			},
		})
	w.r, err = pool.New(w.c, w.events, pool.Options{
		ExtendedResources: true, Book: orders.NewBook(), Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		Metrics: w.metrics, Live: w.c,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) reconcile() {
	w.t.Helper()
	if _, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
		w.t.Fatalf("reconcile: %v", err)
	}
}

func (w *world) pool() *v1alpha1.GPUPool {
	w.t.Helper()
	p := &v1alpha1.GPUPool{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
		w.t.Fatalf("reading the pool: %v", err)
	}
	return p
}

func (w *world) wantEvents(want ...string) {
	w.t.Helper()
	got := w.events.take()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// gauges are the metrics as "name state".
func (w *world) gauges() map[string]float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	gauges := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "state" {
					gauges[family.GetName()+" "+label.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return gauges
}

// served is a node of two GPUs that the pool p holds and its agent publishes, with the pool's class.
func served() []client.Object {
	p := builders.MakePool("p").Obj()
	node := builders.MakeGPUNode("n", 2).
		Decided(assign.Decision(p, builders.UUID("n", 0)), assign.Decision(p, builders.UUID("n", 1))).Obj()
	objects := []client.Object{p, node, builders.NodeIn("n", "p")}
	for _, need := range classes.Needs([]v1alpha1.GPUPool{*p}, nil, true) {
		objects = append(objects, classes.Render(need))
	}
	return objects
}

func TestAPoolIsSummedUp(t *testing.T) {
	w := start(t, append(served(), builders.Allocated("tenant", "n", "gpu-1", "10Gi"))...)
	w.reconcile()
	p := w.pool()
	if !slices.Contains(p.Finalizers, v1alpha1.PoolFinalizer) {
		t.Error("the pool has no finalizer")
	}
	if want := "1/2 GPUs · 10/158.5 GiB"; p.Status.Summary != want {
		t.Errorf("summary: want %q, got %q", want, p.Status.Summary)
	}
	var conditions []string
	for _, c := range p.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
		if c.LastTransitionTime.IsZero() {
			t.Errorf("%s has no transition time", c.Type)
		}
	}
	want := []string{
		"Ready True AllPublished", "Contested False NotContested", "ResourceNameConflict False NoConflict", "Draining False NothingToDrain",
		"OverGuaranteed False GuaranteesCovered",
		"LayoutInvalid False LayoutsPossible", "RollingOut False RolledOut", "ScheduleConflict False NoScheduleConflict",
		"Excluding False NothingExcluded", "Unhealthy False AllHealthy",
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	w.wantEvents("Normal AllPublished")
	metrics := map[string]float64{
		"sluice_pool_gpus allocated": 1, "sluice_pool_gpus held": 2, "sluice_pool_gpus published": 2,
		"sluice_pool_gpus unhealthy": 0, "sluice_pool_gpus excluded": 0,
		"sluice_pool_rollout_gpus done": 2, "sluice_pool_rollout_gpus changing": 0, "sluice_pool_rollout_gpus waiting": 0,
		"sluice_pool_rollout_gpus refused": 0, "sluice_pool_rollout_gpus away": 0,
		"sluice_pool_compute_gpus allocated": 0, "sluice_pool_compute_gpus physical": 2, "sluice_pool_compute_gpus published": 2,
		"sluice_pool_memory_bytes allocated": 10 << 30, "sluice_pool_memory_bytes physical": 81152 << 21, "sluice_pool_memory_bytes published": 81152 << 21,
	}
	if diff := cmp.Diff(metrics, w.gauges()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestAStatusThatStaysIsNotWrittenAgain(t *testing.T) {
	w := start(t, served()...)
	w.reconcile()
	w.reconcile()
	if w.statusWrites != 1 {
		t.Errorf("want one write of the status, got %d", w.statusWrites)
	}
}

func TestEventsSayWhatBecameDifferent(t *testing.T) {
	w := start(t, served()...)
	w.reconcile()
	w.wantEvents("Normal AllPublished")
	transition := meta.FindStatusCondition(w.pool().Status.Conditions, v1alpha1.PoolReady).LastTransitionTime

	if err := w.c.Create(t.Context(), builders.Allocated("tenant", "n", "gpu-0", "1Gi")); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.wantEvents() // another count is no event
	if got := meta.FindStatusCondition(w.pool().Status.Conditions, v1alpha1.PoolReady).LastTransitionTime; !got.Equal(&transition) {
		t.Error("a condition that stays got another transition time")
	}

	class := classes.Render(classes.Need{Name: "p.sluice.dev"})
	if err := w.c.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	class.Labels, class.ResourceVersion = nil, ""
	if err := w.c.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.wantEvents("Warning DeviceClassMissing", "Warning ForeignClass")

	if err := w.c.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.wantEvents("Normal NoConflict")
}

func TestADeletedPoolStaysUntilItIsReleased(t *testing.T) {
	w := start(t, append(served(), builders.Allocated("tenant", "n", "gpu-0", "1Gi"))...)
	w.reconcile()
	if err := w.c.Delete(t.Context(), w.pool()); err != nil {
		t.Fatal(err)
	}
	w.events.take()
	w.reconcile()
	w.wantEvents("Normal Deleting", "Normal TenantsRemain")
	if c := meta.FindStatusCondition(w.pool().Status.Conditions, v1alpha1.PoolDraining); c.Message != "2 GPUs to be freed, held by default/tenant" {
		t.Errorf("draining: %s", c.Message)
	}

	node := builders.MakeGPUNode("n", 2).Obj()
	if err := w.c.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.pool() // its class is still there
	if err := w.c.Delete(t.Context(), classes.Render(classes.Need{Name: "p.sluice.dev"})); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if err := w.c.Get(t.Context(), client.ObjectKey{Name: "p"}, &v1alpha1.GPUPool{}); !apierrors.IsNotFound(err) {
		t.Errorf("want the pool gone, got: %v", err)
	}
	w.reconcile() // nothing is left to do
	if gauges := w.gauges(); len(gauges) > 0 {
		t.Errorf("want no metrics of the pool left, got %v", gauges)
	}
}

func TestNothingIsAnnouncedThatWasNotWritten(t *testing.T) {
	w := start(t, served()...)
	w.failStatus = errors.New("away")
	_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "p"}})
	if !errors.Is(err, w.failStatus) {
		t.Errorf("want the failed write reported, got: %v", err)
	}
	w.wantEvents()
	w.failStatus = nil
	w.reconcile()
	w.wantEvents("Normal AllPublished")
}

func TestGuaranteesAreHeldAgainstThePool(t *testing.T) {
	amount := func(n string) v1alpha1.QuotaAmounts {
		return v1alpha1.QuotaAmounts{v1alpha1.QuotaCompute: {Quantity: resource.MustParse(n)}}
	}
	objects := served()
	for _, object := range objects {
		if p, isPool := object.(*v1alpha1.GPUPool); isPool {
			p.Spec.Tenancy.Cohorts = []v1alpha1.Cohort{{Name: "c"}}
		}
	}
	for _, namespace := range []string{"a", "b"} {
		objects = append(objects, &v1alpha1.GPUQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q"},
			Spec:       v1alpha1.GPUQuotaSpec{Pools: []string{"p"}, Cohort: "c", Hard: amount("300"), Guaranteed: amount("150")},
		})
	}
	w := start(t, objects...)
	w.reconcile()
	c := meta.FindStatusCondition(w.pool().Status.Conditions, v1alpha1.PoolOverGuaranteed)
	if want := "compute: quotas guarantee 300 of p, which has 200"; c.Status != metav1.ConditionTrue || c.Message != want {
		t.Errorf("want True with %q, got %s with %q", want, c.Status, c.Message)
	}
	w.wantEvents("Normal AllPublished", "Warning GuaranteesAboveCapacity")
}
