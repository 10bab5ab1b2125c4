// SPDX-License-Identifier: Apache-2.0

package standing_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/controllers/quota/standing"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

const (
	team = "team-a"
	own  = v1alpha1.LedgerNamespacePrefix + team
	gibi = 1 << 30
)

// recorder keeps events as "type reason".
type recorder struct{ events []string }

func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, _, _ string, _ ...any) {
	r.events = append(r.events, kind+" "+reason)
}

// lengths are how many pods wait, by namespace.
type lengths map[string]int32

func (l lengths) Of(namespace string) int32 { return l[namespace] }

// world is one reconciler.
type world struct {
	t       *testing.T
	c       client.Client
	r       *standing.Reconciler
	events  *recorder
	metrics *prometheus.Registry
	writes  int
	waiting lengths
}

func start(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, events: &recorder{}, metrics: prometheus.NewRegistry(), waiting: lengths{}}
	namespace := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: team},
	}
	built := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, namespace)...).WithStatusSubresource(&v1alpha1.GPUQuota{}).Build()
	w.c = interceptor.NewClient(built, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes++
			return c.SubResource(name).Patch(ctx, o, p, opts...)
		},
	})
	w.r, err = standing.New(w.c, w.events, standing.Options{
		Sight: sight.Reader{Cache: w.c, Live: w.c}, Waiting: w.waiting, Metrics: w.metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) reconcile() {
	w.t.Helper()
	if _, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: own}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) quota() *v1alpha1.GPUQuota {
	w.t.Helper()
	object := &v1alpha1.GPUQuota{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: team, Name: "q"}, object); err != nil {
		w.t.Fatal(err)
	}
	return object
}

// holds writes what the ledger has counted.
func (w *world) holds(amounts quota.Amounts) {
	w.t.Helper()
	l := quota.NewLedger(own)
	l.Namespaces[team] = quota.Entry{Version: "1", Counted: quota.Charges{"p": amounts}}
	object := &v1alpha1.GPULedger{}
	err := w.c.Get(w.t.Context(), client.ObjectKey{Name: own}, object)
	object.Spec = l.Spec()
	if err == nil {
		err = w.c.Update(w.t.Context(), object)
	} else {
		object.Name = own
		err = w.c.Create(w.t.Context(), object)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantEvents(want ...string) {
	w.t.Helper()
	got := w.events.events
	w.events.events = nil
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// gauges are the metrics of quotas as "name resource".
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
				if label.GetName() == "resource" {
					gauges[family.GetName()+" "+label.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return gauges
}

func TestAQuotaShowsHowItStands(t *testing.T) {
	object := builders.MakeQuota(team, "q").Hard(v1alpha1.QuotaMemory, "40Gi").Hard(v1alpha1.QuotaGPUs, "4").Obj()
	object.Generation = 3
	w := start(t, object, builders.MakePool("p").Obj())
	w.reconcile()
	w.wantEvents("Normal " + v1alpha1.ReasonCounting)
	w.holds(quota.Amounts{v1alpha1.QuotaMemory: 30 * gibi, v1alpha1.QuotaGPUs: 3})
	w.waiting[team] = 2
	w.reconcile()
	w.wantEvents("Normal " + v1alpha1.ReasonEnforced)
	got := w.quota().Status
	if want := "memory 30/40Gi · gpus 3/4 · waiting 2"; got.Summary != want {
		t.Errorf("summary %q, want %q", got.Summary, want)
	}
	if got.ObservedGeneration != 3 || ptr.Deref(got.Waiting, 0) != 2 {
		t.Errorf("generation %d and %d waiting, want 3 and 2", got.ObservedGeneration, ptr.Deref(got.Waiting, 0))
	}
	for _, c := range got.Conditions {
		if c.ObservedGeneration != 3 || c.LastTransitionTime.IsZero() {
			t.Errorf("condition %s has generation %d and time %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
		}
	}
	want := map[string]float64{
		"sluice_quota_used memory": 30 * gibi, "sluice_quota_hard memory": 40 * gibi, "sluice_quota_used gpus": 3, "sluice_quota_hard gpus": 4,
	}
	if diff := cmp.Diff(want, w.gauges()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	writes := w.writes
	w.reconcile()
	if w.writes != writes {
		t.Errorf("wrote a status that did not change")
	}
}

func TestAQuotaAboveHardSaysSo(t *testing.T) {
	w := start(t, builders.MakeQuota(team, "q").Hard(v1alpha1.QuotaGPUs, "2").Obj())
	w.holds(quota.Amounts{v1alpha1.QuotaGPUs: 3})
	w.reconcile()
	w.wantEvents("Normal "+v1alpha1.ReasonEnforced, "Warning "+v1alpha1.ReasonAboveHard)
	conditions := w.quota().Status.Conditions
	if !meta.IsStatusConditionTrue(conditions, v1alpha1.QuotaExceeded) || !meta.IsStatusConditionTrue(conditions, v1alpha1.QuotaReady) {
		t.Errorf("conditions %v, want Exceeded and Ready", conditions)
	}
	w.holds(quota.Amounts{v1alpha1.QuotaGPUs: 2})
	w.reconcile()
	w.wantEvents("Normal " + v1alpha1.ReasonWithinHard)
}

func TestTroubleIsSaid(t *testing.T) {
	w := start(t, builders.MakeQuota(team, "q").Hard(v1alpha1.QuotaGPUs, "2").Pools("gone").Obj())
	w.holds(nil)
	w.reconcile()
	w.wantEvents("Warning " + v1alpha1.ReasonPoolNotFound)
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	w := start(t, builders.MakeQuota(team, "q").Hard(v1alpha1.QuotaGPUs, "2").Obj())
	w.holds(nil)
	w.reconcile()
	if len(w.gauges()) == 0 {
		t.Fatal("there are no metrics")
	}
	if err := w.c.Delete(t.Context(), w.quota()); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if got := w.gauges(); len(got) > 0 {
		t.Errorf("metrics of a quota that is gone: %v", got)
	}
}
