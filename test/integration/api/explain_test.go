// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"
)

// TestExplain reads what a user reads: each text names unit, bounds and default.
func TestExplain(t *testing.T) {
	tests := []struct {
		name  string
		field string
		want  []string
	}{
		{
			name: "the sharing of a pool teaches its modes and bounds", field: "gpupool.spec.sharing",
			want: []string{"Exclusive", "TimeSlicing", "Software", "1 to 128", "whole Mi", "percent of one GPU", "Unset:"},
		},
		{name: "overcommit is in percent with bounds and default", field: "gpupool.spec.overcommit", want: []string{"100 to 1000", "Default: 100"}},
		{name: "a rollout says what happens to tenants", field: "gpupool.spec.rollout", want: []string{"Default: 1", "Default: Wait", "Default: 600", "PodDisruptionBudgets"}},
		{name: "a schedule says by which clock", field: "gpupool.spec.schedules", want: []string{"HH:MM", "timeZone", "the first in the list counts", "Unset: every day"}},
		{name: "a layout says which one counts", field: "gpupool.spec.partitioning.mig.layouts", want: []string{"the first in the list counts", "LayoutInvalid", "Up to 16"}},
		{name: "a selector says how its lists are joined", field: "gpupool.spec.gpuSelector", want: []string{"AND", "0 to 255", "*"}},
		{name: "a GPUNode says who writes it", field: "gpunode", want: []string{"written only by the manager", "written only by the node's agent"}},
		{name: "a quota says what costs what", field: "gpuquota", want: []string{"A share of a GPU costs gpus 1", "mig/<profile> 1", "Several quotas in one namespace all hold"}},
		{name: "a cohort says what is lent", field: "gpuquota.spec.cohort", want: []string{"tenancy.cohorts", "lend", "each at most its hard", "Unset:"}},
		{name: "tenancy has defaults and units", field: "gpupool.spec.tenancy", want: []string{"Default: Optional", "0 to 3600. Default: 60", "Unset:"}},
		{name: "a ledger says who writes it and how", field: "gpuledger", want: []string{"nothing but the manager writes", "compare and swap", "resourceVersion"}},
		{name: "a quota says what can be counted", field: "gpuquota.spec.hard", want: []string{"gpus", "memory", "compute", "mig/<profile>"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			text, err := shared.Kubectl(t.Context(), "explain", tc.field)
			if err != nil {
				t.Fatal(err)
			}
			joined := strings.Join(strings.Fields(text), " ")
			for _, want := range tc.want {
				if !strings.Contains(joined, want) {
					t.Errorf("want %q in:\n%s", want, text)
				}
			}
		})
	}
}

// TestShortNames lists the kinds as a user would.
func TestShortNames(t *testing.T) {
	for _, name := range []string{"gpool", "gnode", "gquota", "gledger", "sluice"} {
		if _, err := shared.Kubectl(t.Context(), "get", name); err != nil {
			t.Errorf("get %s: %v", name, err)
		}
	}
}
