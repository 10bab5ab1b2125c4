// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// bounded is a domain of one quota with perClaim amounts, in the pools given.
func bounded(least, most Amounts, pools ...string) *Domain {
	return &Domain{Quotas: []Quota{{Namespace: "a", Name: "main", Pools: pools, Min: least, Max: most}}}
}

func TestOutOfBounds(t *testing.T) {
	share := Grant{Pool: "soft", Amounts: amounts("gpus", "1", "memory", "10Gi", "compute", "30")}
	tests := []struct {
		name   string
		domain *Domain
		want   string
	}{
		{name: "at both bounds is within", domain: bounded(amounts("memory", "10Gi"), amounts("memory", "10Gi", "compute", "30"))},
		{name: "above the most", domain: bounded(nil, amounts("memory", "9Gi")), want: "memory: 10Gi of one GPU asked, but GPUQuota a/main (perClaim) allows at most 9Gi of each GPU"},
		{name: "below the least", domain: bounded(amounts("compute", "31"), nil), want: "compute: 30 of one GPU asked, but GPUQuota a/main (perClaim) allows at least 31 of each GPU"},
		{name: "a quota of other pools has no say", domain: bounded(nil, amounts("memory", "9Gi"), "other")},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if refusal := tc.domain.OutOfBounds("a", []Grant{share}); refusal != nil {
				got = refusal.Sentence
			}
			if got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

func TestOutOfBoundsEarly(t *testing.T) {
	tests := []struct {
		name    string
		domain  *Domain
		request resourceapi.DeviceRequest
		refused bool
	}{
		{name: "a share above the most is refused", domain: bounded(nil, amounts("memory", "9Gi")), request: asks("soft.sluice.dev", 1, "memory", "10Gi"), refused: true},
		{name: "amounts are of each GPU", domain: bounded(nil, amounts("memory", "10Gi")), request: asks("soft.sluice.dev", 4, "memory", "10Gi")},
		{name: "a share below the least is refused", domain: bounded(amounts("memory", "11Gi"), nil), request: asks("soft.sluice.dev", 1, "memory", "10Gi"), refused: true},
		{name: "compute that is left out is none", domain: bounded(amounts("compute", "1"), nil), request: asks("soft.sluice.dev", 1, "memory", "10Gi"), refused: true},
		{name: "a share without an amount may get a small GPU", domain: bounded(nil, amounts("memory", "40Gi")), request: asks("soft.sluice.dev", 1)},
		{name: "a share without an amount may get a large GPU", domain: bounded(amounts("memory", "41Gi"), nil), request: asks("soft.sluice.dev", 1)},
		{name: "an exclusive GPU counts whole", domain: bounded(nil, amounts("memory", "20Gi")), request: asks("whole.sluice.dev", 1), refused: true},
		{name: "one alternative within is enough", domain: bounded(nil, amounts("memory", "10Gi")), request: firstOf("mig-2g.20gb.sluice.dev", "mig-1g.10gb.sluice.dev")},
		{name: "no alternative within is refused", domain: bounded(nil, amounts("memory", "5Gi")), request: firstOf("mig-2g.20gb.sluice.dev", "mig-1g.10gb.sluice.dev"), refused: true},
		{name: "a class of somebody else is left to the judge", domain: bounded(nil, amounts("memory", "5Gi")), request: asks("their.class", 1)},
		{name: "a quota of other pools has no say", domain: bounded(nil, amounts("memory", "5Gi"), "other"), request: asks("soft.sluice.dev", 1, "memory", "10Gi")},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{tc.request}}}
			if got := tc.domain.OutOfBoundsEarly("a", catalog().LeastOf(spec)); (got != nil) != tc.refused {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	domain := &Domain{Quotas: []Quota{
		{Namespace: "a", Name: "1", Pools: []string{"q"}, Default: amounts("memory", "1Gi")},
		{Namespace: "a", Name: "2", Default: amounts("memory", "2Gi")},
		{Namespace: "a", Name: "3", Default: amounts("memory", "3Gi", "compute", "30")},
		{Namespace: "b", Name: "4", Default: amounts("memory", "4Gi")},
	}}
	if diff := cmp.Diff(amounts("memory", "2Gi", "compute", "30"), domain.Defaults("a", "p")); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestAdmits(t *testing.T) {
	closed := &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	closed.Spec.Tenancy = v1alpha1.Tenancy{Quota: v1alpha1.QuotaRequired, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}}
	tests := []struct {
		name   string
		pool   *v1alpha1.GPUPool
		labels map[string]string
		domain *Domain
		want   Reason
	}{
		{name: "a pool without tenancy is for all", pool: &v1alpha1.GPUPool{}},
		{name: "a namespace that is not chosen is refused", pool: closed, domain: domainOf(makeQuota("a", "x")), want: RefusedTenancy},
		{name: "a namespace without a quota is refused", pool: closed, labels: map[string]string{"gpu": "yes"}, want: RefusedNoQuota},
		{name: "a quota of another pool is none", pool: closed, labels: map[string]string{"gpu": "yes"}, domain: domainOf(makeQuota("a", "x", ofPools("q"))), want: RefusedNoQuota},
		{name: "a quota of another namespace is none", pool: closed, labels: map[string]string{"gpu": "yes"}, domain: domainOf(makeQuota("b", "x")), want: RefusedNoQuota},
		{name: "a namespace with a quota may", pool: closed, labels: map[string]string{"gpu": "yes"}, domain: domainOf(makeQuota("a", "x", ofPools("p")))},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := Admits(tc.pool, "a", tc.labels, tc.domain)
			if (got == nil) != (tc.want == "") || (got != nil && got.Reason != tc.want) {
				t.Errorf("want %q, got %v", tc.want, got)
			}
		})
	}
}

func TestOverGuaranteed(t *testing.T) {
	member := func(namespace, memory string, pools ...string) v1alpha1.GPUQuota {
		return makeQuota(namespace, "x", ofPools(pools...), inCohort("c"), hard("memory", memory, "mig/1g.10gb", "99"), guaranteed("memory", memory, "mig/1g.10gb", "99"))
	}
	has := map[string]Amounts{"p": amounts("memory", "80Gi"), "q": amounts("memory", "20Gi")}
	tests := []struct {
		name   string
		quotas []v1alpha1.GPUQuota
		want   string
	}{
		{name: "what the pool has can be guaranteed", quotas: []v1alpha1.GPUQuota{member("a", "40Gi", "p"), member("b", "40Gi", "p")}},
		{name: "more cannot", quotas: []v1alpha1.GPUQuota{member("a", "40Gi", "p"), member("b", "41Gi", "p")}, want: "memory: quotas guarantee 81Gi of p, which has 80Gi"},
		{name: "what several pools have together can", quotas: []v1alpha1.GPUQuota{member("a", "80Gi", "p"), member("b", "20Gi", "p", "q")}},
		{name: "more than they have together cannot", quotas: []v1alpha1.GPUQuota{member("a", "80Gi", "p"), member("b", "21Gi", "q", "p")}, want: "memory: quotas guarantee 101Gi of p, q, which has 100Gi"},
		{name: "other pools are not concerned", quotas: []v1alpha1.GPUQuota{member("a", "900Gi", "q")}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			pools := []v1alpha1.GPUPool{offering("p", "c"), offering("q", "c")}
			if got := OverGuaranteed("p", Domains(tc.quotas, pools, nil), has); got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

func TestCapacities(t *testing.T) {
	memory := resource.MustParse("80Gi")
	node := v1alpha1.GPUNode{Spec: &v1alpha1.GPUNodeSpec{GPUs: []v1alpha1.GPUDecision{
		{UUID: "1", Pool: "soft", Sharing: v1alpha1.SharingSoftware, MemoryPercent: 150, ComputePercent: 200, MaxTenants: 8},
		{UUID: "2", Pool: "soft", Sharing: v1alpha1.SharingSoftware, MemoryPercent: 100, ComputePercent: 100},
		{UUID: "3", Pool: "whole", Sharing: v1alpha1.SharingExclusive},
		{UUID: "4", Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive},
		{UUID: "gone", Pool: "whole", Sharing: v1alpha1.SharingExclusive},
	}}}
	for _, uuid := range []string{"1", "2", "3", "4"} {
		node.Status.GPUs = append(node.Status.GPUs, v1alpha1.GPUStatus{UUID: uuid, Memory: &memory})
	}
	want := map[string]Amounts{
		"soft":  amounts("memory", "200Gi", "compute", "300", "gpus", "24"),
		"whole": amounts("memory", "80Gi", "compute", "100", "gpus", "1"),
		"mig":   amounts("memory", "80Gi", "compute", "100"),
	}
	if diff := cmp.Diff(want, Capacities([]v1alpha1.GPUNode{node})); diff != "" {
		t.Errorf("capacities (-want +got):\n%s", diff)
	}
}
