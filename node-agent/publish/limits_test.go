// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

func demanding(d *v1alpha1.GPUDecision) { d.MemoryLimits = v1alpha1.MemoryLimitsDriver }

func TestWhatHoldsMemoryLimitsIsPublished(t *testing.T) {
	works := memlimits.Probe{Answer: memlimits.Works, Backend: v1alpha1.LimitsBackendMisc}
	none := memlimits.Probe{Answer: memlimits.Unsupported}
	for _, tc := range []struct {
		name   string
		form   v1alpha1.GPUDecision
		probe  memlimits.Probe
		before v1alpha1.MemoryLimits
		inUse  bool
		// offered is what the device says; "" where there is none.
		offered v1alpha1.MemoryLimits
		taint   string
		reason  string
		message string
	}{
		{name: "the driver's", form: decision(), probe: works, offered: v1alpha1.MemoryLimitsDriver, reason: v1alpha1.ReasonPublished},
		{name: "the library's", form: decision(), probe: none, offered: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonPublished},
		{name: "a whole GPU's are nobody's", form: decision(exclusive), probe: works, offered: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonPublished},
		{name: "what was known stays while the driver does not answer", form: decision(), before: v1alpha1.MemoryLimitsDriver,
			offered: v1alpha1.MemoryLimitsDriver, reason: v1alpha1.ReasonPublished},
		{name: "where it is demanded, the driver's", form: decision(demanding), probe: works, offered: v1alpha1.MemoryLimitsDriver, reason: v1alpha1.ReasonPublished},
		{name: "or the GPU is not offered", form: decision(demanding), probe: none, reason: v1alpha1.ReasonDriverTooOld, message: "install driver R615"},
		{name: "a GPU in use stays, tainted", form: decision(demanding), probe: none, inUse: true, before: v1alpha1.MemoryLimitsInterceptor,
			offered: v1alpha1.MemoryLimitsInterceptor, taint: v1alpha1.ReasonDriverTooOld, reason: v1alpha1.ReasonDriverTooOld, message: "install driver R615"},
		{name: "before the driver has answered it is not offered", form: decision(demanding), reason: v1alpha1.ReasonLimitsRefused, message: "not answered yet"},
		{name: "but stays where it was the driver's", form: decision(demanding), before: v1alpha1.MemoryLimitsDriver,
			offered: v1alpha1.MemoryLimitsDriver, reason: v1alpha1.ReasonPublished},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := publish.Input{
				Look: gpu.Node{DriverVersion: "580", GPUs: []gpu.GPU{seen()}}, Decisions: []v1alpha1.GPUDecision{tc.form},
				Probes: map[string]memlimits.Probe{uuid: tc.probe},
			}
			if tc.before != "" {
				in.Record = recorded(tc.form)
				in.Record.GPUs[0].MemoryLimits = tc.before
			}
			if tc.inUse {
				in.InUse = map[string]int{uuid: 1}
			}
			outcomes := publish.Plan(in)
			if o := outcomes[0]; o.Reason != tc.reason || !strings.Contains(o.Message, tc.message) {
				t.Errorf("reason %s: %s, want %s: %s", o.Reason, o.Message, tc.reason, tc.message)
			}
			var offered v1alpha1.MemoryLimits
			taint := ""
			for _, s := range publish.Slices(publish.Record(outcomes, in.Record)) {
				for _, d := range s.Devices {
					offered = v1alpha1.MemoryLimits(*d.Attributes[v1alpha1.AttributeMemoryLimits].StringValue)
					for _, t := range d.Taints {
						taint = t.Value
					}
				}
			}
			if offered != tc.offered || taint != tc.taint {
				t.Errorf("offered as %q with taint %q, want %q and %q", offered, taint, tc.offered, tc.taint)
			}
		})
	}
}
