// SPDX-License-Identifier: Apache-2.0

package count_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/quota/count"
	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

const (
	team     = "team-a"
	own      = v1alpha1.LedgerNamespacePrefix + team
	research = v1alpha1.LedgerCohortPrefix + "research"
)

// fakeSight shows the quotas and claims that a test gives it; the API server may be ahead of the cache.
type fakeSight struct {
	quotas           []v1alpha1.GPUQuota
	cached, live     map[string]int64 // GPUs by claim
	liveVersion      int
	unknown          int32
	liveLooks, looks int
}

var (
	_ count.Sight  = &fakeSight{}
	_ ledger.Sight = &fakeSight{}
)

func (f *fakeSight) Quotas(context.Context) ([]v1alpha1.GPUQuota, error) { return f.quotas, nil }

func (f *fakeSight) Domain(_ context.Context, name string) (*quota.Domain, error) {
	return quota.Domains(f.quotas, nil, nil)[name], nil
}

func (f *fakeSight) LookLive(_ context.Context, namespace string) (quota.Seen, error) {
	f.liveLooks++
	f.liveVersion++
	return f.seen(fmt.Sprint(f.liveVersion), true, namespace, f.live), nil
}

func (f *fakeSight) LookCached(_ context.Context, version, namespace string) (quota.Seen, error) {
	f.looks++
	return f.seen(version, false, namespace, f.cached), nil
}

func (f *fakeSight) seen(version string, live bool, namespace string, claims map[string]int64) quota.Seen {
	seen := quota.Seen{Version: version, Live: live, Namespaces: []string{namespace}}
	// The claim of the reservation is there, and not allocated yet.
	seen.Claims = append(seen.Claims, quota.SeenClaim{UID: "reserved", Namespace: namespace, Version: "95"})
	for uid, gpus := range claims {
		seen.Claims = append(seen.Claims, quota.SeenClaim{
			UID: uid, Namespace: namespace, Version: "60", Charges: gpusOf(gpus), Unknown: f.unknown,
		})
	}
	return seen
}

func gpusOf(n int64) quota.Charges { return quota.Charges{"p": {v1alpha1.QuotaGPUs: n}} }

// world is a reconciler over ledgers in a fake API server.
type world struct {
	t       *testing.T
	c       client.Client
	r       *count.Reconciler
	sight   *fakeSight
	clock   *clocktesting.FakeClock
	reached string
	writes  int
	fail    int // the number of the write that fails
}

func start(t *testing.T, sight *fakeSight, ledgers ...*quota.Ledger) *world {
	t.Helper()
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, sight: sight, clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), reached: "90"}
	sight.liveVersion = 100
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, l := range ledgers {
		object := &v1alpha1.GPULedger{Spec: l.Spec()}
		object.Name = l.Name
		builder = builder.WithObjects(object)
	}
	w.c = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return w.write(func() error { return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return w.write(func() error { return c.Update(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return w.write(func() error { return c.Delete(ctx, o, options...) })
		},
	})
	w.r = &count.Reconciler{
		Cache: w.c, Live: w.c, Sight: sight, Clock: w.clock, Reached: func() string { return w.reached },
		Ledgers: ledger.New(ledger.Options{Client: w.c, Live: w.c, Sight: sight, Clock: w.clock, Leads: func() bool { return true }}),
	}
	return w
}

func (w *world) write(do func() error) error {
	w.writes++
	if w.writes == w.fail {
		return apierrors.NewInternalError(errors.New("down"))
	}
	return do()
}

func (w *world) reconcile(name string) (ctrl.Result, error) {
	return w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
}

func (w *world) must(name string) ctrl.Result {
	w.t.Helper()
	result, err := w.reconcile(name)
	if err != nil {
		w.t.Fatalf("reconciling %s: %v", name, err)
	}
	return result
}

// ledgers are what is stored: the GPUs of each namespace that a ledger judges, -1 for one that is not counted.
func (w *world) ledgers() map[string]map[string]int64 {
	w.t.Helper()
	list := &v1alpha1.GPULedgerList{}
	if err := w.c.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	shown := map[string]map[string]int64{}
	for i := range list.Items {
		l := quota.ReadLedger(&list.Items[i])
		shown[l.Name] = map[string]int64{}
		for namespace, entry := range l.Namespaces {
			switch {
			case entry.MovedTo != "":
			case entry.Version == "":
				shown[l.Name][namespace] = -1
			default:
				shown[l.Name][namespace] = l.Used(namespace, nil)[v1alpha1.QuotaGPUs]
			}
		}
	}
	return shown
}

func (w *world) want(want map[string]map[string]int64) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.ledgers()); diff != "" {
		w.t.Errorf("ledgers (-want +got):\n%s", diff)
	}
}

func alone() []v1alpha1.GPUQuota {
	return []v1alpha1.GPUQuota{*builders.MakeQuota(team, "q").Hard(v1alpha1.QuotaGPUs, "4").Obj()}
}

func joined() []v1alpha1.GPUQuota {
	return []v1alpha1.GPUQuota{*builders.MakeQuota(team, "q").Hard(v1alpha1.QuotaGPUs, "4").Pools("p").Cohort("research").Obj()}
}

// holding is a ledger that has counted a namespace, with a reservation of one GPU.
func holding(name string, gpus int64, expiry time.Time) *quota.Ledger {
	l := quota.NewLedger(name)
	l.Namespaces[team] = quota.Entry{Version: "50", Counted: gpusOf(gpus)}
	l.Reservations["reserved"] = quota.Reservation{Namespace: team, Name: "c", Version: "95", Expiry: expiry, Charges: gpusOf(1)}
	return l
}

func soon() time.Time { return time.Unix(1000, 0).Add(20 * time.Second) }

func TestCounts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sight   *fakeSight
		ledgers []*quota.Ledger
		want    map[string]map[string]int64
		again   time.Duration
		live    int
	}{
		{
			name: "a quota made late counts what the API server has", sight: &fakeSight{quotas: alone(), live: map[string]int64{"a": 2, "b": 1}},
			want: map[string]map[string]int64{own: {team: 3}}, live: 2, // the cache, which is behind, shows something else
		},
		{
			name: "what is reserved and not seen yet is kept", sight: &fakeSight{quotas: alone(), cached: map[string]int64{"a": 2}},
			ledgers: []*quota.Ledger{holding(own, 0, soon())}, want: map[string]map[string]int64{own: {team: 3}}, again: 21 * time.Second,
		},
		{
			name: "what has expired is looked up", sight: &fakeSight{quotas: alone(), live: map[string]int64{"a": 2}, cached: map[string]int64{"a": 2}},
			ledgers: []*quota.Ledger{holding(own, 0, time.Unix(999, 0))}, want: map[string]map[string]int64{own: {team: 2}}, live: 1,
		},
		{
			name: "a namespace without a quota is forgotten, and its ledger removed", sight: &fakeSight{},
			ledgers: []*quota.Ledger{func() *quota.Ledger {
				l := holding(own, 2, soon())
				l.Release("reserved")
				return l
			}()}, want: map[string]map[string]int64{},
		},
		{
			name: "but not while something is under way", sight: &fakeSight{}, ledgers: []*quota.Ledger{holding(own, 2, soon())},
			want: map[string]map[string]int64{own: {team: 3}}, again: 21 * time.Second,
		},
		{
			name: "devices that nothing describes keep a namespace waiting", sight: &fakeSight{quotas: alone(), live: map[string]int64{"a": 1}, unknown: 1},
			want: map[string]map[string]int64{own: {team: -1}}, live: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t, tc.sight, tc.ledgers...)
			result := w.must(own)
			w.want(tc.want)
			if result.RequeueAfter != tc.again {
				t.Errorf("looks again in %s, want %s", result.RequeueAfter, tc.again)
			}
			if tc.sight.liveLooks != tc.live {
				t.Errorf("asked the API server %d times, want %d", tc.sight.liveLooks, tc.live)
			}
			writes := w.writes
			w.must(own)
			if w.writes != writes && tc.name != "devices that nothing describes keep a namespace waiting" {
				t.Errorf("counting again wrote %d times", w.writes-writes)
			}
		})
	}
}

func TestANamespaceMovesWithItsQuota(t *testing.T) {
	for _, tc := range []struct {
		name     string
		quotas   []v1alpha1.GPUQuota
		from, to string
	}{
		{name: "into a cohort", quotas: joined(), from: own, to: research},
		{name: "out of a cohort", quotas: alone(), from: research, to: own},
	} {
		// Whichever write fails, what is held and reserved is judged by one ledger at most, and in the end by the right one.
		for fail := range 6 {
			t.Run(fmt.Sprintf("%s, write %d fails", tc.name, fail), func(t *testing.T) {
				claims := map[string]int64{"a": 2}
				w := start(t, &fakeSight{quotas: tc.quotas, live: claims, cached: claims}, holding(tc.from, 2, soon()))
				w.fail = fail
				for range 4 {
					for _, name := range []string{tc.from, tc.to} {
						_, _ = w.reconcile(name)
						judging := 0
						for _, namespaces := range w.ledgers() {
							if _, judges := namespaces[team]; judges {
								judging++
							}
						}
						if judging > 1 {
							t.Fatalf("%d ledgers judge the namespace: %v", judging, w.ledgers())
						}
					}
				}
				w.want(map[string]map[string]int64{tc.to: {team: 3}})
			})
		}
	}
}

func TestAQuotaThatChangesItsMind(t *testing.T) {
	claims := map[string]int64{"a": 2}
	w := start(t, &fakeSight{quotas: joined(), live: claims, cached: claims}, holding(own, 2, soon()))
	w.fail = 2 // it has left, and nobody took it over
	if _, err := w.reconcile(research); err == nil {
		t.Fatal("the write did not fail")
	}
	w.sight.quotas = alone()
	w.must(own)
	w.must(research)
	w.want(map[string]map[string]int64{own: {team: 3}})
}

func TestAnotherReplicaCountsWhereTheLeaderDoesNot(t *testing.T) {
	for _, tc := range []struct {
		name   string
		leads  bool
		cached map[string]int64
		want   int64
	}{
		{name: "what was freed is counted", cached: map[string]int64{"a": 1}, want: 2},
		{name: "what is counted already is not written again", cached: map[string]int64{"a": 2}, want: 3},
		{name: "the leader counts by itself", leads: true, cached: map[string]int64{"a": 1}, want: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t, &fakeSight{quotas: alone(), cached: tc.cached}, holding(own, 2, soon()))
			standIn := &count.StandIn{Count: w.r, Covered: func(context.Context) bool { return tc.leads }}
			if _, err := standIn.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: own}}); err != nil {
				t.Fatal(err)
			}
			w.want(map[string]map[string]int64{own: {team: tc.want}})
			if tc.want == 3 && w.writes > 0 {
				t.Errorf("wrote %d times", w.writes)
			}
		})
	}
}
