// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

func TestDomains(t *testing.T) {
	picky := offering("picky", "c")
	picky.Spec.Tenancy.Cohorts[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	unreadable := offering("unreadable", "c")
	unreadable.Spec.Tenancy.Cohorts[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Bogus"}}}
	pools := []v1alpha1.GPUPool{offering("p", "c", "d"), offering("plain"), picky, unreadable}
	labels := map[string]map[string]string{"a": {"team": "a"}, "b": {"team": "b"}}
	cohort := func(namespace, name, cohort, pool string, options ...quotaOption) v1alpha1.GPUQuota {
		return makeQuota(namespace, name, append(options, ofPools(pool), inCohort(cohort))...)
	}
	tests := []struct {
		name   string
		quotas []v1alpha1.GPUQuota
		want   map[string]string // by ledger: the quotas and why they joined or not
	}{
		{name: "a namespace without a cohort has a ledger of its own", quotas: []v1alpha1.GPUQuota{makeQuota("a", "x"), makeQuota("b", "y")}, want: map[string]string{"namespace-a": "a/x NoCohort", "namespace-b": "b/y NoCohort"}},
		{name: "a cohort has one ledger", quotas: []v1alpha1.GPUQuota{cohort("b", "y", "c", "p"), cohort("a", "x", "c", "p")}, want: map[string]string{"cohort-c": "a/x Joined, b/y Joined"}},
		{name: "all quotas of a namespace are in the ledger of its cohort", quotas: []v1alpha1.GPUQuota{makeQuota("a", "plain"), cohort("a", "x", "c", "p")}, want: map[string]string{"cohort-c": "a/plain NoCohort, a/x Joined"}},
		{name: "the oldest quota chooses the cohort", quotas: []v1alpha1.GPUQuota{cohort("a", "x", "c", "p"), cohort("a", "y", "d", "p", older(time.Hour))}, want: map[string]string{"cohort-d": "a/y Joined, a/x OtherCohort"}},
		{name: "of equally old quotas the first by name chooses", quotas: []v1alpha1.GPUQuota{cohort("a", "y", "d", "p"), cohort("a", "x", "c", "p")}, want: map[string]string{"cohort-c": "a/x Joined, a/y OtherCohort"}},
		{name: "a pool without the cohort does not offer it", quotas: []v1alpha1.GPUQuota{cohort("a", "x", "c", "plain")}, want: map[string]string{"cohort-c": "a/x CohortNotOffered"}},
		{name: "a pool that does not exist offers nothing", quotas: []v1alpha1.GPUQuota{cohort("a", "x", "c", "none")}, want: map[string]string{"cohort-c": "a/x CohortNotOffered"}},
		{name: "a pool offers by the namespace's labels", quotas: []v1alpha1.GPUQuota{cohort("a", "x", "c", "picky"), cohort("b", "x", "c", "picky")}, want: map[string]string{"cohort-c": "a/x Joined, b/x CohortNotOffered"}},
		{name: "a selector that cannot be read offers nothing", quotas: []v1alpha1.GPUQuota{cohort("a", "x", "c", "unreadable")}, want: map[string]string{"cohort-c": "a/x CohortNotOffered"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := map[string]string{}
			for name, domain := range Domains(tc.quotas, pools, labels) {
				var lines []string
				for _, q := range domain.Quotas {
					lines = append(lines, q.Namespace+"/"+q.Name+" "+q.JoinReason)
				}
				got[name] = strings.Join(lines, ", ")
				if first := domain.Quotas[0].Namespace; LedgerOf(first, tc.quotas) != name {
					t.Errorf("LedgerOf(%s) is %s", first, LedgerOf(first, tc.quotas))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("domains (-want +got):\n%s", diff)
			}
		})
	}
	if got := LedgerOf("z", []v1alpha1.GPUQuota{makeQuota("a", "x")}); got != "" {
		t.Errorf("a namespace without a quota has the ledger %s", got)
	}
}

func TestAmountsThatNoGPUHas(t *testing.T) {
	huge := apiAmounts("memory", "9223372036854775807")
	hugest := makeQuota("a", "x")
	hugest.Spec.Hard = huge
	domain := domainOf(hugest)
	l := holding(domain, map[string]Charges{"a": inPool("p", "memory", "9223372036854775807")})
	if got := domain.Verdict(l, Ask{UID: "u", Namespace: "a", Charges: inPool("p", "memory", "1Gi")}, start()); got != nil {
		t.Errorf("a sum runs over: %v", got)
	}
	if got := amounts("memory", "9E").Times(3); got["memory"] <= 0 {
		t.Errorf("a product runs over: %v", got)
	}
}

func TestStandings(t *testing.T) {
	domain := domainOf(
		makeQuota("a", "main", ofPools("p"), inCohort("c"), hard("memory", "100", "gpus", "5"), guaranteed("memory", "40")),
		makeQuota("b", "main", ofPools("p"), inCohort("c"), hard("memory", "100"), guaranteed("memory", "30")),
		makeQuota("c", "main", ofPools("p"), inCohort("c"), hard("memory", "100"), guaranteed("memory", "30")),
		makeQuota("c", "low", hard("memory", "5")),
	)
	l := holding(domain, map[string]Charges{
		"a": inPool("p", "memory", "51", "gpus", "2"), "b": inPool("p", "memory", "10"), "c": inPool("p", "memory", "20"),
	})
	want := map[types.NamespacedName]Standing{
		{Namespace: "a", Name: "main"}: {Used: amounts("memory", "51", "gpus", "2"), Above: Amounts{}, Borrowed: amounts("memory", "11"), Lent: Amounts{}},
		{Namespace: "b", Name: "main"}: {Used: amounts("memory", "10"), Above: Amounts{}, Borrowed: Amounts{}, Lent: amounts("memory", "7")},
		{Namespace: "c", Name: "main"}: {Used: amounts("memory", "20"), Above: Amounts{}, Borrowed: Amounts{}, Lent: amounts("memory", "4")},
		{Namespace: "c", Name: "low"}:  {Used: amounts("memory", "20"), Above: amounts("memory", "15")},
	}
	if diff := cmp.Diff(want, domain.Standings(l)); diff != "" {
		t.Errorf("standings (-want +got):\n%s", diff)
	}
}

func TestSummary(t *testing.T) {
	profiles, many := Amounts{}, Amounts{}
	for i := range 16 {
		name := "mig/" + strings.Repeat("1", i+1) + "g.10gb"
		profiles[name], many[name] = 1<<62, 1<<62
	}
	tests := []struct {
		name       string
		hard, used Amounts
		waiting    int32
		want       string
	}{
		{
			name: "one line a tenant", hard: amounts("mig/1g.10gb", "4", "compute", "400", "memory", "160Gi"), used: amounts("memory", "120Gi", "compute", "300", "mig/1g.10gb", "2"), waiting: 3,
			want: "memory 120/160Gi · compute 300/400 · 1g.10gb 2/4 · waiting 3",
		},
		{name: "nobody waits", hard: amounts("gpus", "8"), want: "gpus 0/8"},
		{name: "other units are kept", hard: amounts("memory", "160Gi"), used: amounts("memory", "512Mi"), want: "memory 512Mi/160Gi"},
		{name: "a long line is cut", hard: profiles, used: many},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := Summary(tc.hard, tc.used, tc.waiting)
			if tc.want != "" && got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
			if len([]rune(got)) > maxSummary {
				t.Errorf("%d characters", len([]rune(got)))
			}
		})
	}
}

func TestConditions(t *testing.T) {
	joined := Quota{Cohort: "c", Joined: true, JoinReason: v1alpha1.ReasonJoined, JoinMessage: "belongs to cohort c"}
	counted := Entry{Version: "1"}
	wants := Entry{Version: "1", Wanted: &Wanted{Charges: inPool("p", "memory", "1Gi")}}
	tests := []struct {
		name     string
		standing Standing
		facts    StatusFacts
		want     string
	}{
		{name: "all is well", facts: StatusFacts{Entry: counted}, want: "Ready True Enforced, Exceeded False WithinHard, Joined True Joined, Borrowing False WithinGuarantee, Reclaiming False NothingToReclaim"},
		{name: "an exceeded quota is ready", standing: Standing{Above: amounts("gpus", "1")}, facts: StatusFacts{Entry: counted}, want: "Ready True Enforced, Exceeded True AboveHard, Joined True Joined, Borrowing False WithinGuarantee, Reclaiming False NothingToReclaim"},
		{name: "a borrower says so", standing: Standing{Borrowed: amounts("gpus", "1")}, facts: StatusFacts{Entry: counted}, want: "Ready True Enforced, Exceeded False WithinHard, Joined True Joined, Borrowing True AboveGuarantee, Reclaiming False NothingToReclaim"},
		{name: "not counted yet", want: "Ready False Counting, Exceeded False WithinHard, Joined True Joined, Borrowing False WithinGuarantee, Reclaiming False NothingToReclaim"},
		{name: "a device that nothing describes", facts: StatusFacts{Entry: Entry{Version: "1", Unknown: 2}}, want: "Ready False Uncounted, Exceeded False WithinHard, Joined True Joined, Borrowing False WithinGuarantee, Reclaiming False NothingToReclaim"},
		{name: "a pool that does not exist", facts: StatusFacts{Entry: counted, MissingPools: []string{"x"}}, want: "Ready False PoolNotFound, Exceeded False WithinHard, Joined True Joined, Borrowing False WithinGuarantee, Reclaiming False NothingToReclaim"},
		{name: "what was lent is on its way", facts: StatusFacts{Entry: wants}, want: "Ready True Enforced, Exceeded False WithinHard, Joined True Joined, Borrowing False WithinGuarantee, Reclaiming True WaitingForLent"},
		{name: "a disruption budget is in the way", facts: StatusFacts{Entry: wants, Blocked: "budget b/x allows none"}, want: "Ready True Enforced, Exceeded False WithinHard, Joined True Joined, Borrowing False WithinGuarantee, Reclaiming True BlockedByDisruptionBudget"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var lines []string
			for _, c := range joined.Conditions(tc.standing, tc.facts) {
				lines = append(lines, c.Type+" "+string(c.Status)+" "+c.Reason)
				if c.Message == "" {
					t.Errorf("%s says nothing", c.Type)
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(lines, ", ")); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}
