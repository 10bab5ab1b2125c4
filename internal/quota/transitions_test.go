// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

func reserved(uid, version string, charges Charges) func(*Ledger) {
	return func(l *Ledger) {
		l.Reserve(Ask{UID: uid, Namespace: "a", Name: "claim-" + uid, Version: version, Charges: charges}, start())
	}
}

func look(version string, claims ...SeenClaim) Seen {
	return Seen{Version: version, Namespaces: []string{"a"}, Claims: claims}
}

func claimAt(uid, version string, charges Charges) SeenClaim {
	return SeenClaim{UID: uid, Namespace: "a", Version: version, Charges: charges}
}

// TestRecount says what a namespace holds in the end, counted and reserved.
func TestRecount(t *testing.T) {
	gpu := inPool("p", "gpus", "1")
	tests := []struct {
		name   string
		before []func(*Ledger)
		look   Seen
		after  time.Duration // how long after the reservation the look was taken
		live   bool
		want   Amounts
		counts Amounts
	}{
		{name: "allocated claims are counted", look: look("200", claimAt("1", "150", gpu), claimAt("2", "151", nil)), want: amounts("gpus", "1"), counts: amounts("gpus", "1")},
		{name: "a reservation that is not seen stays", before: []func(*Ledger){reserved("1", "190", gpu)}, look: look("180"), want: amounts("gpus", "1"), counts: Amounts{}},
		{name: "a reservation whose claim is seen as it was stays", before: []func(*Ledger){reserved("1", "150", gpu)}, look: look("200", claimAt("1", "150", nil)), want: amounts("gpus", "1"), counts: Amounts{}},
		{name: "a reservation is settled by its allocation", before: []func(*Ledger){reserved("1", "150", gpu)}, look: look("200", claimAt("1", "160", gpu)), want: amounts("gpus", "1"), counts: amounts("gpus", "1")},
		{name: "an allocation from before does not settle a later reservation", before: []func(*Ledger){reserved("1", "170", gpu)}, look: look("200", claimAt("1", "160", gpu)), want: amounts("gpus", "2"), counts: amounts("gpus", "1")},
		{name: "a reservation whose claim has changed otherwise is over", before: []func(*Ledger){reserved("1", "150", gpu)}, look: look("200", claimAt("1", "160", nil)), want: Amounts{}, counts: Amounts{}},
		{name: "a reservation whose claim is gone is over", before: []func(*Ledger){reserved("1", "150", gpu)}, look: look("200"), want: Amounts{}, counts: Amounts{}},
		{name: "a live look before its end leaves a reservation", before: []func(*Ledger){reserved("1", "900", gpu)}, look: look("200"), after: ReservationTTL - time.Nanosecond, live: true, want: amounts("gpus", "1"), counts: Amounts{}},
		{name: "a look at a cache after its end leaves a reservation", before: []func(*Ledger){reserved("1", "900", gpu)}, look: look("200"), after: time.Hour, want: amounts("gpus", "1"), counts: Amounts{}},
		{name: "a live look after its end drops a reservation", before: []func(*Ledger){reserved("1", "900", gpu)}, look: look("200"), after: ReservationTTL, live: true, want: Amounts{}, counts: Amounts{}},
		{name: "of two reservations of one claim the larger stays", before: []func(*Ledger){reserved("1", "150", inPool("p", "gpus", "1", "memory", "2")), reserved("1", "150", inPool("p", "gpus", "2", "memory", "1"))}, look: look("120"), want: amounts("gpus", "2", "memory", "2"), counts: Amounts{}},
		{name: "a second try does not make a reservation settle earlier", before: []func(*Ledger){reserved("1", "160", gpu), reserved("1", "150", gpu)}, look: look("200", claimAt("1", "155", nil)), want: amounts("gpus", "1"), counts: Amounts{}},
		{
			name:   "with a device that nothing describes the count does not go down",
			before: []func(*Ledger){func(l *Ledger) { l.Namespaces["a"] = Entry{Version: "100", Counted: inPool("p", "gpus", "3")} }},
			look:   look("200", claimAt("1", "150", gpu), SeenClaim{UID: "2", Namespace: "a", Version: "150", Unknown: 1}),
			want:   amounts("gpus", "3"), counts: amounts("gpus", "3"),
		},
		{
			name: "an allocation that nothing describes counts as it was reserved",
			before: []func(*Ledger){
				func(l *Ledger) { l.Namespaces["a"] = Entry{Version: "100", Counted: inPool("p", "gpus", "3")} }, reserved("2", "140", inPool("p", "gpus", "2")),
			},
			look: look("200", SeenClaim{UID: "2", Namespace: "a", Version: "150", Unknown: 1}),
			want: amounts("gpus", "5"), counts: amounts("gpus", "5"),
		},
		{name: "claims of other namespaces are not counted here", look: look("200", SeenClaim{UID: "9", Namespace: "z", Version: "150", Charges: gpu}), want: Amounts{}, counts: Amounts{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			l := NewLedger("namespace-a")
			for _, step := range tc.before {
				step(l)
			}
			tc.look.Live = tc.live
			if err := l.Recount(tc.look, start().Add(tc.after)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, l.Used("a", nil)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.counts, l.Namespaces["a"].Counted.In(nil)); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnOlderLookChangesNothing(t *testing.T) {
	l := NewLedger("namespace-a")
	if err := l.Recount(look("200", claimAt("1", "150", inPool("p", "gpus", "1"))), start()); err != nil {
		t.Fatal(err)
	}
	before := l.Clone()
	var stale *StaleError
	if err := l.Recount(look("199"), start()); !errors.As(err, &stale) {
		t.Fatalf("want a StaleError, got %v", err)
	}
	if diff := cmp.Diff(before, l); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}
}

func TestANamespaceMovesWithAllThatItHolds(t *testing.T) {
	from, to := NewLedger("namespace-a"), NewLedger("cohort-c")
	reserved("1", "190", inPool("p", "gpus", "2"))(from)
	if err := from.Recount(look("180", claimAt("2", "150", inPool("p", "gpus", "1"))), start()); err != nil {
		t.Fatal(err)
	}
	from.Leave("a", to.Name)
	domain := domainOf(makeQuota("a", "main", hard("gpus", "9")))
	if got := domain.Verdict(from, Ask{UID: "3", Namespace: "a", Charges: inPool("p", "gpus", "1")}, start()); got == nil {
		t.Error("the ledger that was left still allows")
	}
	for range 2 {
		to.Join("a", from)
		if diff := cmp.Diff(amounts("gpus", "3"), to.Used("a", nil)); diff != "" {
			t.Errorf("held (-want +got):\n%s", diff)
		}
	}
	from.Forget("a")
	if diff := cmp.Diff(NewLedger("namespace-a"), from); diff != "" {
		t.Errorf("the ledger that was left (-want +got):\n%s", diff)
	}
}

func TestALedgerIsReadAsItWasWritten(t *testing.T) {
	l := NewLedger("cohort-c")
	l.Namespaces["a"] = Entry{
		Version: "7", Counted: inPool("p", "gpus", "1", "memory", "1Gi"), Unknown: 2,
		Wanted: &Wanted{Since: start(), Until: start().Add(time.Minute), Charges: inPool("p", "gpus", "1")},
	}
	l.Namespaces["b"] = Entry{Version: "7", Counted: Charges{}, MovedTo: "namespace-b"}
	reserved("1", "5", inPool("", "mig/1g.10gb+me", "1"))(l)
	object := &v1alpha1.GPULedger{ObjectMeta: metav1.ObjectMeta{Name: l.Name}, Spec: l.Spec()}
	if diff := cmp.Diff(l, ReadLedger(object)); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(object.Spec, ReadLedger(object).Spec()); diff != "" {
		t.Errorf("written twice (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(l, l.Clone()); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}
}

func TestAnExpiryIsNotWrittenEarlier(t *testing.T) {
	for _, at := range []time.Time{start(), start().Add(1), start().Add(time.Microsecond - 1)} {
		if got := microTime(at); got.Time.Before(at) {
			t.Errorf("%s is written as %s", at, got)
		}
	}
}

func TestNoNamespaceFillsTheLedgerOfACohort(t *testing.T) {
	for _, tc := range []struct {
		name        string
		own, others int
		cohort      bool
		want        bool
	}{
		{name: "alone it may fill it", own: v1alpha1.MaxLedgerReservations - 1, want: true},
		{name: "and no more", own: v1alpha1.MaxLedgerReservations},
		{name: "in a cohort it may take half", own: v1alpha1.MaxLedgerReservations/2 - 1, cohort: true, want: true},
		{name: "and no more than half", own: v1alpha1.MaxLedgerReservations / 2, cohort: true},
		{name: "of what another left there is room", others: v1alpha1.MaxLedgerReservations / 2, cohort: true, want: true},
		{name: "where the others have it all there is none", others: v1alpha1.MaxLedgerReservations, cohort: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := NewLedger("l")
			for i := range tc.own {
				l.Reservations[fmt.Sprintf("own-%d", i)] = Reservation{Namespace: "own"}
			}
			for i := range tc.others {
				l.Reservations[fmt.Sprintf("other-%d", i)] = Reservation{Namespace: "other"}
			}
			if got := l.hasRoom("own", tc.cohort); got != tc.want {
				t.Errorf("room: got %v, want %v", got, tc.want)
			}
		})
	}
}
