// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	judged "github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/dra"
)

// ward says how GPUs are as a test wants it, and keeps what is told.
type ward struct {
	verdicts map[string]judged.Verdict
	reports  []dra.DeviceHealth
	told     []string
}

func (*ward) Run(context.Context)                   {}
func (*ward) Resume([]v1alpha1.GPUStatus)           {}
func (*ward) Looked(gpu.Node, error, []string)      {}
func (*ward) Forget([]string)                       {}
func (w *ward) Verdicts() map[string]judged.Verdict { return w.verdicts }
func (w *ward) Report(devices []dra.DeviceHealth)   { w.reports = devices }
func (w *ward) Tell(_ context.Context, namespace string, pod checkpoint.Pod, eventType, reason, message string) error {
	w.told = append(w.told, fmt.Sprintf("%s %s on %s/%s: %s", eventType, reason, namespace, pod.Name, message))
	return nil
}

func (w *ward) TellNode(_ context.Context, node *v1alpha1.GPUNode, eventType, reason, message string) error {
	w.told = append(w.told, fmt.Sprintf("%s %s on node %s: %s", eventType, reason, node.Name, message))
	return nil
}

// taints are those of the one device that is offered.
func (r *rig) taints(t *testing.T) []string {
	t.Helper()
	taints := []string{}
	for _, s := range r.stored {
		for _, d := range s.Devices {
			for _, taint := range d.Taints {
				taints = append(taints, fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect))
			}
		}
	}
	return taints
}

func well() judged.Verdict {
	return judged.Verdict{State: v1alpha1.HealthHealthy, Reason: v1alpha1.HealthReasonHealthy}
}

func TestAGPUFallsIllAndGetsWell(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "pool"))
	r.ward.verdicts = map[string]judged.Verdict{"GPU-0": well()}
	r.prepare(t, "GPU-0", "claim")
	claims, err := r.store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	claim := claims.Claims["claim"]
	claim.Namespace, claim.Pods = "tenant", []checkpoint.Pod{{Name: "pod", UID: "uid"}}
	claims.Claims["claim"] = claim
	if err := r.store.SaveClaims(claims); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		when    string
		verdict judged.Verdict
		seen    bool
		taints  []string
		report  dra.DeviceHealth
		told    []string
		taint   v1alpha1.TaintReason
	}{
		{
			when: "while it is well", verdict: well(), seen: true,
			taints: []string{}, report: dra.DeviceHealth{Device: "gpu-0", Healthy: true},
		},
		{
			when:    "after an error of its hardware",
			verdict: judged.Verdict{State: v1alpha1.HealthSuspect, Reason: v1alpha1.HealthReasonXID, Message: "XID 48", XID: 48}, seen: true,
			taints: []string{"gpu.sluice.dev/unhealthy=XID:NoSchedule"},
			report: dra.DeviceHealth{Device: "gpu-0", Message: "XID 48"},
			told:   []string{"Warning GPUSuspect on tenant/pod: GPU GPU-0: XID 48"},
			taint:  v1alpha1.TaintUnhealthy,
		},
		{
			when:    "when it is lost",
			verdict: judged.Verdict{State: v1alpha1.HealthLost, Reason: v1alpha1.HealthReasonOffBus, Message: "off the bus"},
			taints:  []string{"gpu.sluice.dev/unhealthy=OffBus:NoExecute"},
			report:  dra.DeviceHealth{Device: "gpu-0", Message: "off the bus"},
			told:    []string{"Warning GPULost on tenant/pod: GPU GPU-0: off the bus"},
			taint:   v1alpha1.TaintLost,
		},
		{
			when: "when it is back", verdict: well(), seen: true,
			taints: []string{}, report: dra.DeviceHealth{Device: "gpu-0", Healthy: true},
			told: []string{"Normal GPUHealthy on tenant/pod: GPU GPU-0 is well again"},
		},
	} {
		r.ward.verdicts["GPU-0"], r.ward.told = step.verdict, nil
		r.look.GPUs = nil
		if step.seen {
			r.look.GPUs = []gpu.GPU{h100(0)}
		}
		r.passes(t)
		if diff := cmp.Diff(step.taints, r.taints(t)); diff != "" {
			t.Errorf("taints %s (-want +got):\n%s", step.when, diff)
		}
		if diff := cmp.Diff([]dra.DeviceHealth{step.report}, r.ward.reports); diff != "" {
			t.Errorf("what kubelet is told %s (-want +got):\n%s", step.when, diff)
		}
		if diff := cmp.Diff(step.told, r.ward.told); diff != "" {
			t.Errorf("what the pod is told %s (-want +got):\n%s", step.when, diff)
		}
		status := r.gpuNode.Status.GPUs[0]
		got := status.Health
		got.Since = nil
		want := v1alpha1.GPUHealth{State: step.verdict.State, Reason: step.verdict.Reason, Message: step.verdict.Message, XID: step.verdict.XID}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("health in the status %s (-want +got):\n%s", step.when, diff)
		}
		if status.Published.Taint != step.taint {
			t.Errorf("the published taint %s is %q, want %q", step.when, status.Published.Taint, step.taint)
		}
	}
}

func TestALostGPUThatNobodyHasIsWithdrawnInTheEnd(t *testing.T) {
	r := newRig(t, h100(0), h100(1))
	r.decide(decided("GPU-0", "pool"), decided("GPU-1", "pool"))
	r.passes(t)
	r.look.GPUs = r.look.GPUs[:1]
	lost := judged.Verdict{State: v1alpha1.HealthLost, Reason: v1alpha1.HealthReasonOffBus, Message: "off the bus"}
	r.ward.verdicts = map[string]judged.Verdict{"GPU-0": well(), "GPU-1": lost}
	r.passes(t)
	r.expectDevices(t, "while the loss is new", "gpu-0", "gpu-1!OffBus")
	lost.Forget = true
	r.ward.verdicts["GPU-1"] = lost
	r.passes(t)
	r.expectDevices(t, "after a while", "gpu-0")
}

func TestASickGPUThatWasNeverOfferedIsToldOf(t *testing.T) {
	r := newRig(t, h100(0), h100(1))
	r.decide()
	r.passes(t)
	r.look.GPUs = r.look.GPUs[:1]
	hangs := judged.Verdict{State: v1alpha1.HealthSuspect, Reason: v1alpha1.HealthReasonNVMLHangs, Message: "it hangs"}
	r.ward.verdicts = map[string]judged.Verdict{"GPU-0": well(), "GPU-1": hangs}
	r.passes(t)
	if n := len(r.gpuNode.Status.GPUs); n != 2 {
		t.Fatalf("the status tells of %d GPUs, want 2", n)
	}
	got := r.gpuNode.Status.GPUs[1]
	if got.Health.Reason != v1alpha1.HealthReasonNVMLHangs || got.Reason != v1alpha1.ReasonUnhealthy {
		t.Errorf("it says %+v, reason %s", got.Health, got.Reason)
	}
	hangs.State, hangs.Forget = v1alpha1.HealthLost, true
	r.ward.verdicts["GPU-1"] = hangs
	r.passes(t)
	if n := len(r.gpuNode.Status.GPUs); n != 1 {
		t.Errorf("in the end the status tells of %d GPUs, want 1", n)
	}
}
