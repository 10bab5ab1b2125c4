// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/publish"
	"github.com/sluice-gpu/sluice/node-agent/report"
)

func TestWhatHoldsMemoryLimitsIsReported(t *testing.T) {
	held := v1alpha1.GPUMemoryLimits{HeldBy: v1alpha1.MemoryLimitsDriver, Backend: v1alpha1.LimitsBackendDmem}
	refused := v1alpha1.GPUMemoryLimits{HeldBy: v1alpha1.MemoryLimitsInterceptor, Reason: v1alpha1.ReasonLimitsRefused, Message: strings.Repeat("no", 500)}
	before := v1alpha1.GPUNodeStatus{GPUs: []v1alpha1.GPUStatus{{UUID: "GPU-0", MemoryLimits: held}}}
	for _, tc := range []struct {
		name   string
		limits v1alpha1.GPUMemoryLimits
		before v1alpha1.GPUNodeStatus
		want   v1alpha1.GPUMemoryLimits
	}{
		{name: "the driver's", limits: held, want: held},
		{name: "a refusal, within its bounds", limits: refused, want: v1alpha1.GPUMemoryLimits{
			HeldBy: v1alpha1.MemoryLimitsInterceptor, Reason: v1alpha1.ReasonLimitsRefused, Message: strings.Repeat("no", 254) + "n…"}},
		{name: "what was known while nobody knows", before: before, want: held},
		{name: "nothing while nobody knows"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := good(func(f *report.Facts) {
				f.Before, f.Outcomes = tc.before, []publish.Outcome{outcome(func(o *publish.Outcome) { o.Limits = tc.limits })}
			})
			if diff := cmp.Diff(tc.want, report.Status(f).GPUs[0].MemoryLimits); diff != "" {
				t.Errorf("memory limits (-want +got):\n%s", diff)
			}
		})
	}
}
