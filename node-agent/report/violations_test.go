// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/report"
	"github.com/sluice-gpu/sluice/node-agent/violations"
)

func violated(claim, reason string, second int64) v1alpha1.Violation {
	return v1alpha1.Violation{
		ClaimUID: claim, Result: ptr.To(int32(0)), Claim: "ml/" + claim, GPU: "GPU-0", Reason: reason, Action: v1alpha1.ViolationReport,
		Held: ptr.To(resource.MustParse("3Gi")), Limit: ptr.To(resource.MustParse("2Gi")),
		Processes: []string{"python (7)"}, Since: ptr.To(metav1.NewTime(time.Unix(second, 0))),
	}
}

func TestViolations(t *testing.T) {
	many := violations.Report{Known: true, Shares: 70}
	for i := range 70 {
		many.Violations = append(many.Violations, violated(fmt.Sprintf("c%02d", i), v1alpha1.ReasonOverLimit, 9))
	}
	before := func(f *report.Facts) {
		f.Before.Violations = []v1alpha1.Violation{violated("c", v1alpha1.ReasonOverLimit, 5)}
		f.Before.Conditions = []metav1.Condition{{Type: v1alpha1.NodeLimitsViolated, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOverLimit, Message: "as it was"}}
	}
	for _, tc := range []struct {
		name       string
		change     []func(f *report.Facts)
		count      int
		since      int64
		limits     string
		unverified string
	}{
		{
			name: "all is well", change: []func(*report.Facts){func(f *report.Facts) { f.Violations = violations.Report{Known: true, Shares: 2} }},
			limits: "False WithinLimits no share", unverified: "False Verified NVML says what every process of 2 shares holds",
		},
		{
			name: "a share above its limit", change: []func(*report.Facts){func(f *report.Facts) {
				v := violated("c", v1alpha1.ReasonOverLimit, 9)
				v.Pods = []string{"ml/a", "ml/b"}
				f.Violations = violations.Report{Known: true, Shares: 2, Violations: []v1alpha1.Violation{v}}
			}},
			count: 1, since: 9, limits: "True OverLimit ml/a, ml/b hold 3Gi of GPU-0, more than 2Gi", unverified: "False Verified",
		},
		{
			name: "a process past the library", change: []func(*report.Facts){func(f *report.Facts) {
				f.Violations = violations.Report{Known: true, Shares: 1, Violations: []v1alpha1.Violation{violated("c", v1alpha1.ReasonUnregisteredProcess, 9)}}
			}},
			count: 1, since: 9, limits: "True UnregisteredProcess claim ml/c use GPU-0 past the library: python (7)", unverified: "False Verified",
		},
		{
			name: "another agent knows since when", change: []func(*report.Facts){before, func(f *report.Facts) {
				f.Violations = violations.Report{Known: true, Shares: 1, Violations: []v1alpha1.Violation{violated("c", v1alpha1.ReasonOverLimit, 9)}}
			}},
			count: 1, since: 5, limits: "True OverLimit claim ml/c", unverified: "False Verified",
		},
		{
			name: "an agent that has not looked yet leaves what was found", change: []func(*report.Facts){before},
			count: 1, since: 5, limits: "True OverLimit as it was", unverified: "False Verified there is no share",
		},
		{
			name: "more than the status holds are counted", change: []func(*report.Facts){func(f *report.Facts) { f.Violations = many }},
			count: 64, since: 9, limits: "True OverLimit claim ml/c00", unverified: "False Verified",
		},
		{
			name: "no figure", change: []func(*report.Facts){func(f *report.Facts) {
				f.Violations = violations.Report{Known: true, Shares: 1, Unverified: []string{"a", "b", "c", "d", "e"}}
			}},
			limits: "False WithinLimits", unverified: "True NoFigures a; b; c; d (and 1 more)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := report.Status(good(tc.change...))
			if len(s.Violations) != tc.count || (tc.count > 0 && s.Violations[0].Since.Unix() != tc.since) {
				t.Errorf("violations %+v, want %d since %d", s.Violations, tc.count, tc.since)
			}
			for condition, want := range map[string]string{v1alpha1.NodeLimitsViolated: tc.limits, v1alpha1.NodeMemoryUnverified: tc.unverified} {
				c := meta.FindStatusCondition(s.Conditions, condition)
				if c == nil {
					t.Fatalf("no condition %s", condition)
				}
				if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); !strings.Contains(got, want) {
					t.Errorf("%s is %q, want %q", condition, got, want)
				}
			}
		})
	}
}
