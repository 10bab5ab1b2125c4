// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/cgroups"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

func TestWhatHoldsMemoryLimitsIsTold(t *testing.T) {
	r := newRig(t, h100(0), h100(1))
	r.probe = memlimits.Probe{Answer: memlimits.Works, Backend: v1alpha1.LimitsBackendDmem}
	r.decide(decided("GPU-0", "shared"), decided("GPU-1", "library", func(d *v1alpha1.GPUDecision) {
		d.MemoryLimits = v1alpha1.MemoryLimitsInterceptor
	}))
	r.passes(t)
	got := map[string]string{}
	for _, s := range r.stored {
		for _, d := range s.Devices {
			got[d.Name] = *d.Attributes[v1alpha1.AttributeMemoryLimits].StringValue
		}
	}
	if diff := cmp.Diff(map[string]string{"gpu-0": "Driver", "gpu-1": "Interceptor"}, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	for i, want := range []string{"", v1alpha1.ReasonPoolDecides} {
		if l := r.gpuNode.Status.GPUs[i].MemoryLimits; l.Reason != want {
			t.Errorf("GPU %d reports %+v, want reason %q", i, l, want)
		}
	}
}

func TestPodsAreToldThatTheLibraryHoldsThem(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "shared"))
	r.passes(t)
	r.fallbacks = []cgroups.Fallback{{
		Claim: checkpoint.Claim{UID: "a", Namespace: "ns", Pods: []checkpoint.Pod{{Name: "pod"}}}, Message: "the driver is too old",
	}}
	if _, err := r.agent.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"Normal MemoryLimitsByLibrary on ns/pod: GPU memory limits are held by Sluice's library alone: the driver is too old"}
	if diff := cmp.Diff(want, r.ward.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
