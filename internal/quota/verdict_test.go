// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

func TestVerdict(t *testing.T) {
	one := domainOf(makeQuota("a", "main", hard("memory", "100Gi", "gpus", "4", "mig/1g.10gb", "0")))
	two := domainOf(makeQuota("a", "main", hard("memory", "100Gi")), makeQuota("a", "soft", ofPools("p"), hard("memory", "20Gi")))
	cohort := domainOf(
		makeQuota("a", "main", ofPools("p"), inCohort("c"), hard("memory", "100Gi", "gpus", "50"), guaranteed("memory", "40Gi")),
		makeQuota("b", "main", ofPools("p"), inCohort("c"), hard("memory", "100Gi"), guaranteed("memory", "60Gi")),
		makeQuota("c", "guest", ofPools("p"), inCohort("c"), hard("memory", "80Gi")),
	)
	tests := []struct {
		name   string
		domain *Domain
		held   map[string]Charges
		wanted map[string]*Wanted
		asker  string
		since  time.Time
		asked  Charges
		want   string // the sentence; "" where it is allowed
		reason Reason
	}{
		{name: "what fits is allowed", domain: one, held: map[string]Charges{"a": inPool("p", "memory", "60Gi")}, asked: inPool("p", "memory", "40Gi")},
		{
			name: "one byte too much is refused", domain: one, held: map[string]Charges{"a": inPool("p", "memory", "60Gi")}, asked: inPool("q", "memory", "42949672961"),
			want: "memory: 40Gi asked, 60Gi used, and GPUQuota a/main allows 100Gi: 40Gi left", reason: RefusedHard,
		},
		{
			name: "what could never fit is told so", domain: one, asked: inPool("p", "gpus", "5"),
			want: "gpus: 5 asked, but GPUQuota a/main allows 4 in all: ask for less", reason: RefusedHard,
		},
		{
			name: "0 is none", domain: one, asked: inPool("p", "mig/1g.10gb", "1"),
			want: "mig/1g.10gb: 1 asked, but GPUQuota a/main allows 0 in all: ask for less", reason: RefusedHard,
		},
		{name: "what is not named is not bounded", domain: one, asked: inPool("p", "compute", "100000", "mig/2g.20gb", "9")},
		{name: "an exceeded amount does not refuse others", domain: one, held: map[string]Charges{"a": inPool("p", "memory", "200Gi")}, asked: inPool("p", "gpus", "1", "memory", "0")},
		{
			name: "the second quota of a namespace holds too", domain: two, held: map[string]Charges{"a": inPool("p", "memory", "15Gi")}, asked: inPool("p", "memory", "6Gi"),
			want: "memory: 6Gi asked, 15Gi used, and GPUQuota a/soft allows 20Gi: 5Gi left", reason: RefusedHard,
		},
		{name: "a quota of other pools is not concerned", domain: two, held: map[string]Charges{"a": inPool("p", "memory", "15Gi")}, asked: inPool("q", "memory", "6Gi")},
		{name: "what is of an unknown pool counts everywhere", domain: two, held: map[string]Charges{"a": inPool("", "memory", "15Gi")}, asked: inPool("p", "memory", "6Gi"), reason: RefusedHard},

		{name: "a namespace borrows what others leave unused", domain: cohort, asker: "a", asked: inPool("p", "memory", "100Gi")},
		{name: "a namespace without a guarantee borrows", domain: cohort, asker: "c", asked: inPool("p", "memory", "80Gi")},
		{
			name: "nobody borrows more than others leave", domain: cohort, asker: "a", asked: inPool("p", "memory", "60Gi"),
			held: map[string]Charges{"b": inPool("p", "memory", "50Gi")}, reason: RefusedCohort,
			want: "memory: 60Gi asked, 0 used with 40Gi guaranteed by GPUQuota a/main, and cohort c has 50Gi left to lend",
		},
		{name: "what nobody guarantees is bounded by hard only", domain: cohort, asker: "a", asked: inPool("p", "gpus", "50")},
		{name: "another pool is not of the cohort", domain: cohort, asker: "a", asked: inPool("q", "memory", "900Gi")},
		{
			name: "an owner waits for what was lent", domain: cohort, asker: "b", asked: inPool("p", "memory", "60Gi"),
			held: map[string]Charges{"a": inPool("p", "memory", "80Gi")}, reason: RefusedLent,
			want: "memory: 60Gi asked, 0 used with 60Gi guaranteed by GPUQuota b/main: what cohort c lent to others is being taken back",
		},
		{
			name: "what an owner waits for is not borrowed again", domain: cohort, asker: "a", asked: inPool("p", "memory", "20Gi"),
			held:   map[string]Charges{"a": inPool("p", "memory", "40Gi")},
			wanted: map[string]*Wanted{"b": {Since: start(), Until: start(), Charges: inPool("p", "memory", "50Gi")}}, reason: RefusedCohort,
		},
		{
			name: "an owner that came later leaves room to one that waits longer", domain: cohort, asker: "a", asked: inPool("p", "memory", "20Gi"), since: start(),
			held:   map[string]Charges{"c": inPool("p", "memory", "35Gi")},
			wanted: map[string]*Wanted{"b": {Since: start().Add(-time.Second), Until: start().Add(time.Hour), Charges: inPool("p", "memory", "50Gi")}}, reason: RefusedLent,
		},
		{
			name: "but not for ever", domain: cohort, asker: "a", asked: inPool("p", "memory", "20Gi"), since: start(),
			held:   map[string]Charges{"c": inPool("p", "memory", "35Gi")},
			wanted: map[string]*Wanted{"b": {Since: start().Add(-time.Second), Until: start(), Charges: inPool("p", "memory", "50Gi")}},
		},
		{
			name: "and not to one that came later still", domain: cohort, asker: "a", asked: inPool("p", "memory", "20Gi"), since: start(),
			held:   map[string]Charges{"c": inPool("p", "memory", "35Gi")},
			wanted: map[string]*Wanted{"b": {Since: start().Add(time.Second), Until: start().Add(time.Hour), Charges: inPool("p", "memory", "50Gi")}},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			l := holding(tc.domain, tc.held)
			for namespace, wanted := range tc.wanted {
				l.Want(namespace, wanted)
			}
			asker := tc.asker
			if asker == "" {
				asker = "a"
			}
			got := tc.domain.Verdict(l, Ask{UID: "u", Namespace: asker, Version: "1", Since: tc.since, Charges: tc.asked}, start())
			switch {
			case got == nil && tc.reason == "":
			case got == nil:
				t.Fatalf("want %s, it was allowed", tc.reason)
			case got.Reason != tc.reason || (tc.want != "" && got.Sentence != tc.want):
				t.Errorf("want %s: %s\ngot %s: %s", tc.reason, tc.want, got.Reason, got.Sentence)
			}
		})
	}
}

func TestNothingIsAllowedBeforeItWasCounted(t *testing.T) {
	domain := domainOf(makeQuota("a", "main", hard("gpus", "4")))
	ask := Ask{UID: "u", Namespace: "a", Version: "1", Charges: inPool("p", "gpus", "1")}
	tests := []struct {
		name   string
		ledger func(*Ledger)
	}{
		{name: "no entry", ledger: func(*Ledger) {}},
		{name: "moved away", ledger: func(l *Ledger) { l.Namespaces["a"] = Entry{Version: "1", MovedTo: "cohort-c"} }},
		{name: "first counted with a device that nothing describes", ledger: func(l *Ledger) {
			seen := Seen{Version: "9", Namespaces: []string{"a"}, Claims: []SeenClaim{{UID: "x", Namespace: "a", Version: "5", Unknown: 1}}}
			if err := l.Recount(seen, start()); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			l := NewLedger(domain.Ledger)
			tc.ledger(l)
			if got := domain.Verdict(l, ask, start()); got == nil || got.Reason != RefusedUncounted {
				t.Errorf("want %s, got %v", RefusedUncounted, got)
			}
			if got := domain.Verdict(l, Ask{Namespace: "a"}, start()); got != nil {
				t.Errorf("what costs nothing is allowed, got %v", got)
			}
		})
	}
}

func TestALedgerIsBounded(t *testing.T) {
	domain := domainOf(makeQuota("a", "main", hard("compute", "4")))
	l := holding(domain, nil)
	for i := range v1alpha1.MaxLedgerReservations {
		l.Reserve(Ask{UID: fmt.Sprint(i), Namespace: "a", Version: "1", Charges: inPool("p", "gpus", "1")}, start())
	}
	ask := Ask{UID: "u", Namespace: "a", Version: "1", Charges: inPool("p", "gpus", "1")}
	if got := domain.Verdict(l, ask, start()); got == nil || got.Reason != RefusedBusy {
		t.Errorf("want %s, got %v", RefusedBusy, got)
	}
	again := ask
	again.UID = "7"
	if got := domain.Verdict(l, again, start()); got != nil {
		t.Errorf("want a claim with a reservation allowed again, got %v", got)
	}
}

// TestEveryFormAgainstEveryResource holds each form of request, as it is allocated, against a quota of each resource:
// exactly its cost is allowed, one less is refused, and what it does not cost is not held against it.
func TestEveryFormAgainstEveryResource(t *testing.T) {
	alternative := onDevice("gpu-2-mig-1g10gb-0")
	alternative.Request = "main/1g-10gb"
	extended := onDevice("gpu-1")
	extended.Request = "container-0-request-0"
	forms := map[string]*resourceapi.ResourceClaim{
		"sluice.dev limits":                        allocated(sharing("10Gi", "30")),
		"sluice.dev limits in a MIG pool":          allocated(alternative),
		"nvidia.com/gpu":                           allocated(extended),
		"nvidia.com/mig-3g.40gb":                   allocated(onDevice("gpu-2-mig-3g40gb-0")),
		"a hand-written claim of a share":          allocated(sharing("1Gi", "0")),
		"a template of an exclusive GPU":           allocated(onDevice("gpu-1")),
		"firstAvailable":                           allocated(alternative),
		"a count of three":                         allocated(sharing("1Gi", "5"), sharing("1Gi", "5"), sharing("1Gi", "5")),
		"All":                                      allocated(sharing("1Gi", "5"), onDevice("gpu-1"), onDevice("gpu-2-mig-1g10gb-0")),
		"a class of somebody else with a selector": allocated(onDevice("gpu-1")),
	}
	for form, claim := range forms {
		charges, err := CostOf(claim, knownFacts())
		if err != nil {
			t.Fatal(err)
		}
		cost := charges.In(nil)
		for _, resource := range []string{"gpus", "memory", "compute", "mig/1g.10gb", "mig/3g.40gb"} {
			t.Run(form+" against "+resource, func(t *testing.T) {
				refused := func(bound int64) bool {
					domain := &Domain{Ledger: "namespace-a", Quotas: []Quota{{Namespace: "a", Name: "q", Hard: Amounts{resource: bound}}}}
					return domain.Verdict(holding(domain, nil), Ask{UID: "u", Namespace: "a", Version: "1", Charges: charges}, start()) != nil
				}
				if refused(cost[resource]) {
					t.Errorf("its cost of %d is refused", cost[resource])
				}
				if cost[resource] > 0 && !refused(cost[resource]-1) {
					t.Errorf("one less than its cost of %d is allowed", cost[resource])
				}
			})
		}
	}
}

func TestFits(t *testing.T) {
	domain := domainOf(makeQuota("a", "main", hard("gpus", "4")))
	l := holding(domain, map[string]Charges{"a": inPool("p", "gpus", "3")})
	tests := []struct {
		name   string
		ledger *Ledger
		asked  Charges
		want   *Refusal
	}{
		{name: "what fits is not refused", ledger: l, asked: inPool("p", "gpus", "1")},
		{name: "what does not fit now is refused", ledger: l, asked: inPool("p", "gpus", "2"), want: &Refusal{Reason: RefusedHard, Namespace: "a", Quota: "main", Resource: "gpus", Asked: 2, Used: 3, Allowed: 4, Sentence: "gpus: 2 asked, 3 used, and GPUQuota a/main allows 4: 1 left"}},
		{name: "before the count only what never fits is refused", ledger: NewLedger("x"), asked: inPool("p", "gpus", "4")},
		{name: "what never fits is refused before the count", ledger: NewLedger("x"), asked: inPool("p", "gpus", "5"), want: &Refusal{Reason: RefusedHard, Never: true, Namespace: "a", Quota: "main", Resource: "gpus", Asked: 5, Allowed: 4, Sentence: "gpus: 5 asked, but GPUQuota a/main allows 4 in all: ask for less"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, domain.Fits(tc.ledger, "a", tc.asked, start())); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}
