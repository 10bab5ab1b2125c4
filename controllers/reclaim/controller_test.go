// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/controllers/tenants"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// world is a cohort of the namespaces team, which has borrowed, and owner, which waits. It is also what the reconciler
// sees and whom it tells.
type world struct {
	*testing.T
	client  client.Client
	ledger  *quota.Ledger
	claims  []held
	waiting []quota.Pod
	clock   *clocktesting.FakeClock
	reclaim *Reconciler

	done      []string          // evictions and events, in order
	forbidden map[string]bool   // pods that a disruption budget protects
	policed   map[string]bool   // pods that somebody's admission policy protects
	graces    map[string]int64  // by pod
	wrote     int               // writes of the ledger
	said      map[string]string // notes by event
}

var (
	_ Gatherer      = &world{}
	_ Ledgers       = &world{}
	_ Observer      = &world{}
	_ eventRecorder = &world{}
)

func (w *world) Gather(context.Context, string, time.Time) (tenants.State, error) {
	state := tenants.State{Ledger: w.ledger, Domain: &quota.Domain{Ledger: "cohort-c", Quotas: []quota.Quota{
		{Namespace: "owner", Name: "q", Pools: []string{"p"}, Cohort: "c", Joined: true, Hard: quota.Amounts{"gpus": 4}, Guaranteed: quota.Amounts{"gpus": 2}},
		{Namespace: "team", Name: "q", Pools: []string{"p"}, Cohort: "c", Joined: true, Hard: quota.Amounts{"gpus": 4}, Guaranteed: quota.Amounts{"gpus": 1}},
	}}}
	for _, line := range w.waiting {
		state.Waiting = append(state.Waiting, tenants.Pod{Line: line})
	}
	return state, nil
}

func (w *world) Change(_ context.Context, _ string, change ledger.Change) error {
	writes, err := change(w.ledger, w.clock.Now())
	if writes {
		w.wrote++
		w.done = append(w.done, "write the ledger")
	}
	return err
}

func (w *world) LookCached(_ context.Context, _, namespace string) (quota.Seen, error) {
	var seen quota.Seen
	for _, c := range w.claims {
		if c.claim.Namespace == namespace {
			seen.Claims = append(seen.Claims, quota.SeenClaim{UID: string(c.claim.UID), Namespace: namespace, Charges: c.charges})
		}
	}
	return seen, nil
}

func (w *world) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	about, ok := regarding.(*corev1.ObjectReference)
	if !ok {
		w.Fatalf("an event on %T", regarding)
	}
	w.done = append(w.done, reason+" "+about.Name)
	w.said[reason] = fmt.Sprintf(note, args...)
}

// newWorld has team hold a GPU by each of the pods, of which the first is the oldest, and owner wait for one.
func newWorld(t *testing.T, pods ...*corev1.Pod) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{
		T: t, clock: clocktesting.NewFakeClock(noon()), ledger: quota.NewLedger("cohort-c"),
		forbidden: map[string]bool{}, policed: map[string]bool{}, graces: map[string]int64{}, said: map[string]string{},
	}
	pool := &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	pool.Spec.Tenancy.ReclaimGracePeriodSeconds = ptr.To[int32](20)
	objects := []client.Object{pool}
	for i, p := range pods {
		w.claims = append(w.claims, claim("claim-"+p.Name, i, p.Name))
		objects = append(objects, p, w.claims[i].claim)
	}
	w.ledger.Namespaces["team"] = quota.Entry{Version: "1", Counted: gpus(int64(len(pods)))}
	w.ledger.Namespaces["owner"] = quota.Entry{Version: "1"}
	w.wait("first")
	w.client = interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{SubResourceCreate: w.evicts})
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.reclaim = &Reconciler{
		Client: w.client, Live: w.client, Tenants: w, Observer: w, Ledgers: w, Recorder: w, Clock: w.clock, Blocked: NewBlocked(nil), metrics: m,
	}
	return w
}

func (w *world) wait(name string) {
	w.waiting = append(w.waiting, quota.Pod{UID: name, Namespace: "owner", Name: name, Since: noon(), Cost: gpus(1)})
}

// evicts is the Eviction API.
func (w *world) evicts(ctx context.Context, c client.Client, _ string, object, subResource client.Object, _ ...client.SubResourceCreateOption) error {
	eviction, ok := subResource.(*policyv1.Eviction)
	if !ok {
		w.Fatalf("want an eviction, got %T", subResource)
	}
	if w.policed[object.GetName()] {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, object.GetName(), errors.New("a policy keeps it"))
	}
	if w.forbidden[object.GetName()] {
		return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	}
	if len(eviction.DeleteOptions.DryRun) > 0 {
		return nil
	}
	w.done = append(w.done, "evict "+object.GetName())
	w.graces[object.GetName()] = *eviction.DeleteOptions.GracePeriodSeconds
	return c.Delete(ctx, object)
}

func (w *world) reconcile() time.Duration {
	w.Helper()
	result, err := w.reclaim.Reconcile(w.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "cohort-c"}})
	if err != nil {
		w.Fatal(err)
	}
	return result.RequeueAfter
}

// wantDone compares what was done since the last call.
func (w *world) wantDone(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.done); diff != "" {
		w.Errorf("done (-want +got):\n%s", diff)
	}
	w.done = nil
}

func TestTheNewestBorrowedPodGoes(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("new", 0))
	if after := w.reconcile(); after != again {
		t.Errorf("want another look after %s, got %s", again, after)
	}
	w.wantDone("write the ledger", "QuotaReclaiming new", "evict new", "QuotaReclaimed new")
	wanted := w.ledger.Namespaces["owner"].Wanted
	if wanted == nil || !wanted.Until.Equal(noon().Add(20*time.Second)) {
		t.Errorf("want the waiting pod's amounts kept for it, got %v", wanted)
	}
	w.reconcile() // the ledger still counts the claim of the pod that is gone
	w.wantDone()
}

func TestAPodThatEndsIsWaitedFor(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("ends", 0, func(p *corev1.Pod) {
		deleted(p)
		p.Finalizers = []string{"example.com/keep"}
	}))
	w.reconcile()
	w.wantDone("write the ledger")
}

func TestTheGraceIsTheCohorts(t *testing.T) {
	w := newWorld(t, pod("kept", 0),
		pod("long", 0, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600) }),
		pod("short", 0, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](5) }))
	w.wait("second")
	w.reconcile()
	if diff := cmp.Diff(map[string]int64{"long": 20, "short": 5}, w.graces); diff != "" {
		t.Errorf("graces (-want +got):\n%s", diff)
	}
}

func TestADisruptionBudgetSendsItToTheNext(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("new", 0))
	w.forbidden["new"] = true
	if after := w.reconcile(); after != time.Second {
		t.Errorf("want another look after a second, got %s", after)
	}
	w.wantDone("write the ledger", "QuotaReclaimBlocked first")
	if why := w.reclaim.Blocked.Why("owner"); !strings.HasPrefix(why, "team/new may not be evicted: Cannot evict pod") {
		t.Errorf("why: got %q", why)
	}
	w.reconcile()
	w.wantDone("QuotaReclaiming old", "evict old", "QuotaReclaimed old")
}

func TestAPolicySendsItToTheNext(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("new", 0))
	w.policed["new"] = true
	w.reconcile()
	w.reconcile()
	w.wantDone("write the ledger", "QuotaReclaimBlocked first", "QuotaReclaiming old", "evict old", "QuotaReclaimed old")
}

func TestWhereEveryBudgetForbidsNobodyIsEvicted(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("new", 0))
	w.forbidden["kept"], w.forbidden["old"], w.forbidden["new"] = true, true, true
	for range 5 {
		w.reconcile()
	}
	w.wantDone("write the ledger", "QuotaReclaimBlocked first", "QuotaReclaimBlocked first", "QuotaReclaimBlocked first")
	if why := w.reclaim.Blocked.Why("owner"); !strings.HasSuffix(why, "; and 2 more") {
		t.Errorf("why: got %q", why)
	}
	delete(w.forbidden, "new")
	w.clock.Step(tryAgain)
	w.reconcile()
	w.wantDone("write the ledger", "QuotaReclaiming new", "evict new", "QuotaReclaimed new")
}

func TestAllThatAPodNeedsOrNobody(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("new", 0))
	w.waiting[0].Cost = gpus(2)
	w.forbidden["kept"], w.forbidden["old"] = true, true
	w.reconcile()
	w.reconcile()
	if slices.Contains(w.done, "evict new") {
		t.Error("new was evicted although that alone helps nobody")
	}
}

func TestWhereNobodyWaitsNobodyIsLookedAt(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("new", 0))
	w.reconcile()
	w.done, w.waiting = nil, nil
	if after := w.reconcile(); after != 0 {
		t.Errorf("want no other look, got one after %s", after)
	}
	w.wantDone("write the ledger")
	if wanted := w.ledger.Namespaces["owner"].Wanted; wanted != nil {
		t.Errorf("want nothing wanted any more, got %v", wanted)
	}
}

func TestAnEvictedPodThatComesBackEvictsNobody(t *testing.T) {
	w := newWorld(t, pod("kept", 0), pod("old", 0), pod("new", 0))
	w.waiting[0].Namespace = "team"
	w.reconcile()
	w.wantDone()
}
