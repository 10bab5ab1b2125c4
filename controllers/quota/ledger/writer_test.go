// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

const (
	namespace = "team-a"
	name      = v1alpha1.LedgerNamespacePrefix + namespace
)

// fakeSight shows one quota, and the claims that a test says are stored.
type fakeSight struct {
	mu     sync.Mutex
	domain *quota.Domain
	stored map[string]int64 // GPUs by claim
	looks  int
}

var _ ledger.Sight = &fakeSight{}

func newSight(hard string) *fakeSight {
	object := builders.MakeQuota(namespace, "q").Hard(v1alpha1.QuotaGPUs, hard).Obj()
	return &fakeSight{domain: quota.Domains([]v1alpha1.GPUQuota{*object}, nil, nil)[name], stored: map[string]int64{}}
}

func (f *fakeSight) Domain(context.Context, string) (*quota.Domain, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.domain, nil
}

func (f *fakeSight) LookLive(_ context.Context, of string) (quota.Seen, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	seen := quota.Seen{Version: "100", Live: true, Namespaces: []string{of}}
	for uid, gpus := range f.stored {
		seen.Claims = append(seen.Claims, quota.SeenClaim{UID: uid, Namespace: of, Version: "50", Charges: gpusOf(gpus)})
	}
	return seen, nil
}

func gpusOf(n int64) quota.Charges { return quota.Charges{"p": {v1alpha1.QuotaGPUs: n}} }

func ask(uid string) quota.Ask {
	return quota.Ask{UID: uid, Namespace: namespace, Name: uid, Version: "10", Charges: gpusOf(1)}
}

// counted is a ledger that has counted its namespace, which holds nothing.
func counted() *v1alpha1.GPULedger {
	l := quota.NewLedger(name)
	l.Namespaces[namespace] = quota.Entry{Version: "5", Counted: quota.Charges{}}
	object := &v1alpha1.GPULedger{Spec: l.Spec()}
	object.Name = name
	return object
}

func newClient(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), funcs)
}

func newWriter(c client.Client, sight ledger.Sight, now clock.WithTicker) *ledger.Writer {
	return ledger.New(ledger.Options{Client: c, Live: c, Sight: sight, Clock: now, Leads: func() bool { return true }})
}

func stored(t *testing.T, c client.Client) *quota.Ledger {
	t.Helper()
	object := &v1alpha1.GPULedger{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, object); err != nil {
		t.Fatal(err)
	}
	return quota.ReadLedger(object)
}

// crowd charges claims through writers in turn, tries again where nothing was decided, and counts what was allowed.
func crowd(t *testing.T, writers []*ledger.Writer, claims int) int64 {
	t.Helper()
	var allowed atomic.Int64
	var wait sync.WaitGroup
	for i := range claims {
		wait.Go(func() {
			for try := 0; ; try++ {
				err := writers[(i+try)%len(writers)].Charge(t.Context(), name, ask(fmt.Sprintf("uid-%d", i)))
				var refusal *quota.Refusal
				switch {
				case err == nil:
					allowed.Add(1)
					return
				case errors.As(err, &refusal):
					return
				case !errors.Is(err, ledger.ErrTryAgain):
					t.Errorf("charging: %v", err)
					return
				}
			}
		})
	}
	wait.Wait()
	return allowed.Load()
}

func TestNoMoreIsAllowedThanTheQuota(t *testing.T) {
	var updates atomic.Int64
	lost := func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
		switch updates.Add(1) % 7 {
		case 3: // another writer came first
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("gpuledgers").GroupResource(), name, errors.New("changed"))
		case 5: // written, but the answer is lost, as when one side dies
			if err := c.Update(ctx, object, options...); err != nil {
				return err
			}
			return apierrors.NewTimeoutError("no answer", 1)
		default:
			return c.Update(ctx, object, options...)
		}
	}
	for _, tc := range []struct {
		name    string
		writers int
		funcs   interceptor.Funcs
	}{
		{name: "by one writer", writers: 1},
		{name: "by three writers that meet", writers: 3},
		{name: "by two writers whose writes fail, or succeed without an answer", writers: 2, funcs: interceptor.Funcs{Update: lost}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClient(t, tc.funcs, counted())
			var writers []*ledger.Writer
			for range tc.writers {
				writers = append(writers, newWriter(c, newSight("17"), clock.RealClock{}))
			}
			if got := crowd(t, writers, 120); got != 17 {
				t.Errorf("%d were allowed, want 17", got)
			}
			if got := len(stored(t, c).Reservations); got != 17 {
				t.Errorf("%d are reserved, want 17", got)
			}
		})
	}
}

func TestWhatArrivesTogetherIsWrittenTogether(t *testing.T) {
	var updates atomic.Int64
	begun, slow := make(chan struct{}), make(chan struct{})
	c := newClient(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		if updates.Add(1) == 1 {
			close(begun)
			<-slow
		}
		return c.Update(ctx, o, options...)
	}}, counted())
	w := newWriter(c, newSight("100"), clock.RealClock{})
	var wait sync.WaitGroup
	for i := range 50 {
		wait.Go(func() {
			if err := w.Charge(t.Context(), name, ask(fmt.Sprintf("uid-%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	close(slow)
	wait.Wait()
	if got := updates.Load(); got > 10 {
		t.Errorf("50 charges took %d writes", got)
	}
}

func TestWhatNoLedgerCanHoldFailsAlone(t *testing.T) {
	begun, slow := make(chan struct{}), make(chan struct{})
	var first sync.Once
	c := newClient(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		first.Do(func() {
			close(begun)
			<-slow
		})
		object, ok := o.(*v1alpha1.GPULedger)
		if !ok {
			return fmt.Errorf("%T is written", o)
		}
		if _, bad := quota.ReadLedger(object).Reservations["bad"]; bad {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "GPULedger"}, name, nil)
		}
		return c.Update(ctx, o, options...)
	}}, counted())
	w := newWriter(c, newSight("100"), clock.RealClock{})
	var wait sync.WaitGroup
	charge := func(uid string, want bool) {
		wait.Go(func() {
			if err := w.Charge(t.Context(), name, ask(uid)); (err == nil) != want {
				t.Errorf("%s: %v", uid, err)
			}
		})
	}
	charge("first", true)
	<-begun
	charge("bad", false)
	for i := range 10 {
		charge(fmt.Sprintf("uid-%d", i), true)
	}
	close(slow)
	wait.Wait()
}

func TestAnExpiredReservationEndsOnlyByALook(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stored map[string]int64
		want   string
	}{
		{name: "what was stored unseen still counts", stored: map[string]int64{"first": 1}, want: "gpus: 1 asked, 1 used, and GPUQuota team-a/q allows 1: 0 left"},
		{name: "what was never stored makes room"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			sight := newSight("1")
			w := newWriter(newClient(t, interceptor.Funcs{}, counted()), sight, now)
			if err := w.Charge(t.Context(), name, ask("first")); err != nil {
				t.Fatal(err)
			}
			now.Step(quota.ReservationTTL + time.Second)
			sight.stored = tc.stored
			var got string
			if err := w.Charge(t.Context(), name, ask("second")); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the second claim (-want +got):\n%s", diff)
			}
			if sight.looks != 1 {
				t.Errorf("looked %d times, want once", sight.looks)
			}
		})
	}
}

func TestWhatIsNotDecided(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []client.Object
		domain  bool
		failing bool
		reason  quota.Reason
	}{
		{name: "a namespace without a ledger waits for its count", domain: true, reason: quota.RefusedUncounted},
		{name: "a quota that this replica has not seen is no quota of nothing", objects: []client.Object{counted()}},
		{name: "a ledger that cannot be written", objects: []client.Object{counted()}, domain: true, failing: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var funcs interceptor.Funcs
			if tc.failing {
				funcs.Update = func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
					return apierrors.NewInternalError(errors.New("down"))
				}
			}
			sight := newSight("1")
			if !tc.domain {
				sight.domain = nil
			}
			err := newWriter(newClient(t, funcs, tc.objects...), sight, clock.RealClock{}).Charge(t.Context(), name, ask("first"))
			var refusal *quota.Refusal
			switch {
			case errors.As(err, &refusal):
				if refusal.Reason != tc.reason {
					t.Errorf("refused because of %s, want %q", refusal.Reason, tc.reason)
				}
			case tc.reason != "" || !errors.Is(err, ledger.ErrTryAgain):
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAReplicaLeavesAContendedLedgerToTheLeader(t *testing.T) {
	for _, tc := range []struct {
		name  string
		leads bool
		lost  int64 // so many writes meet another's
		want  error
	}{
		{name: "a few conflicts are overcome", lost: 3},
		{name: "many are the leader's doing", lost: 100, want: ledger.ErrContended},
		{name: "the leader goes on", leads: true, lost: 12},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var updates atomic.Int64
			c := newClient(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
				if updates.Add(1) <= tc.lost {
					return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("gpuledgers").GroupResource(), name, errors.New("changed"))
				}
				return c.Update(ctx, o, options...)
			}}, counted())
			w := ledger.New(ledger.Options{
				Client: c, Live: c, Sight: newSight("1"), Clock: clock.RealClock{}, Leads: func() bool { return tc.leads },
			})
			if err := w.Charge(t.Context(), name, ask("first")); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestAnEmptyLedgerIsRemoved(t *testing.T) {
	c := newClient(t, interceptor.Funcs{})
	w := newWriter(c, newSight("1"), clock.RealClock{})
	change := func(change func(*quota.Ledger)) {
		t.Helper()
		err := w.Change(t.Context(), name, func(l *quota.Ledger, _ time.Time) (bool, error) {
			change(l)
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(l *quota.Ledger) { l.Namespaces[namespace] = quota.Entry{Version: "1"} })
	stored(t, c)
	change(func(l *quota.Ledger) { l.Forget(namespace) })
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.GPULedger{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ledger is still there: %v", err)
	}
	change(func(l *quota.Ledger) { l.Namespaces[namespace] = quota.Entry{Version: "2"} })
	if got := stored(t, c).Namespaces[namespace].Version; got != "2" {
		t.Errorf("made again with version %q, want 2", got)
	}
}

func TestWhoGaveUpIsNotCharged(t *testing.T) {
	c := newClient(t, interceptor.Funcs{}, counted())
	w := newWriter(c, newSight("1"), clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Charge(ctx, name, ask("gone")); !errors.Is(err, ledger.ErrTryAgain) {
		t.Errorf("got %v, want to try again", err)
	}
	if err := w.Charge(t.Context(), name, ask("here")); err != nil {
		t.Errorf("the next: %v", err)
	}
}
