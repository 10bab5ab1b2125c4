// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/mps"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
)

func TestANodeThatCannotShareByMPSSaysSo(t *testing.T) {
	r := newRig(t, h100(0), h100(1))
	r.mpsProgram = mps.ErrNoProgram
	r.decide(decided("GPU-0", "software"), decided("GPU-1", "software"))
	r.passes(t)
	r.expectCondition(t, "where nobody asks", "MPSServing", "True", "MPSNotUsed")
	r.decide(decided("GPU-0", "software"), decided("GPU-1", "mps", func(d *v1alpha1.GPUDecision) { d.Sharing = v1alpha1.SharingMPS }))
	r.passes(t)
	r.expectCondition(t, "where a pool asks", "MPSServing", "False", "MPSProgramMissing")
	for i, want := range []bool{false, true} {
		if got := r.gpuNode.Status.GPUs[i].Message; strings.Contains(got, "nvidia-cuda-mps-control") != want {
			t.Errorf("GPU %d says %q", i, got)
		}
	}
	r.mpsProgram = nil
	r.passes(t)
	r.expectCondition(t, "when it is there", "MPSServing", "True", "MPSNotUsed")
	if got := r.gpuNode.Status.GPUs[1].Message; got != "" {
		t.Errorf("the GPU goes on saying %q", got)
	}
}

func TestMPSMetricsAreOfTheDevicesThatThereAre(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	metrics.MPS([]watch.Count{{Device: "GPU-0", Answers: true, Clients: 3}, {Device: "MIG-1", Bypassing: 2}})
	want := map[string]float64{
		"sluice_agent_mps_daemon GPU-0": 1, "sluice_agent_mps_daemon MIG-1": 0,
		"sluice_agent_mps_clients GPU-0": 3, "sluice_agent_mps_clients MIG-1": 0,
		"sluice_agent_mps_bypassing_processes GPU-0": 0, "sluice_agent_mps_bypassing_processes MIG-1": 2,
	}
	if diff := cmp.Diff(want, byDevice(t, registry)); diff != "" {
		t.Errorf("metrics differ (-want +got):\n%s", diff)
	}
	metrics.MPS(nil)
	if diff := cmp.Diff(map[string]float64{}, byDevice(t, registry)); diff != "" {
		t.Errorf("metrics of devices that nobody has any more (-want +got):\n%s", diff)
	}
}

// byDevice are the metrics with a device.
func byDevice(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "uuid" {
					values[f.GetName()+" "+l.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return values
}
