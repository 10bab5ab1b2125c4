// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/usage"
)

const gibi = 1 << 30

// series are those of metrics whose names begin so, as name{pod,container,by}=value.
func series(t *testing.T, registry *prometheus.Registry, prefix string) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if slices.Contains([]string{"pod", "container", "by", "state", "profile", "uuid"}, l.GetName()) && l.GetValue() != "" {
					labels = append(labels, l.GetValue())
				}
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			list = append(list, fmt.Sprintf("%s{%s}=%g", strings.TrimPrefix(f.GetName(), prefix), strings.Join(labels, ","), value))
		}
	}
	return list
}

func sample(pod string) usage.Sample {
	return usage.Sample{
		Claim:  checkpoint.Claim{Namespace: "ml", Name: pod + "-sluice-x1y2z", Pods: []checkpoint.Pod{{Name: pod}}},
		Result: checkpoint.Result{Request: "main", Device: "gpu-0"}, Pool: "shared",
		Words: limits.Words{MemoryLimit: 4 * gibi, ComputeShare: 2500}, Held: 3 * gibi, Known: true,
		Ledger: &limits.Ledger{
			Holders: []limits.Holder{{Held: gibi}, {Held: gibi}}, Refused: 5, RefusedByDriver: 1, GPUTime: 2_500_000_000, WaitTime: 500_000_000,
		},
	}
}

func newMetrics(t *testing.T) (*usage.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := usage.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

func TestAShareHasItsSeries(t *testing.T) {
	m, registry := newMetrics(t)
	m.Show([]usage.Sample{sample("a")})
	want := []string{
		"compute_ratio{main,a}=0.25", "gpu_seconds_total{main,a}=2.5", "memory_held_bytes{main,a}=3.221225472e+09",
		"memory_limit_bytes{main,a}=4.294967296e+09", "memory_peak_bytes{main,a}=3.221225472e+09", "memory_used_bytes{main,a}=2.147483648e+09",
		"processes{main,a}=2", "refused_allocations_total{driver,main,a}=1", "refused_allocations_total{limit,main,a}=5",
		"violated{main,a}=0", "wait_seconds_total{main,a}=0.5",
	}
	if diff := cmp.Diff(want, series(t, registry, "sluice_share_")); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	m.Show([]usage.Sample{sample("b")})
	for _, s := range series(t, registry, "sluice_share_") {
		if strings.Contains(s, "main,a") {
			t.Errorf("a share that is gone has %s", s)
		}
	}
	m.Show(nil)
	if got := series(t, registry, "sluice_share_"); len(got) > 0 {
		t.Errorf("without shares there are %v", got)
	}
}

func TestSharesAreCalledWhatIsKnown(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *usage.Sample)
		want   string
	}{
		{"a claim that was made for a pod", func(*usage.Sample) {}, "violated{main,a}=0"},
		{"one of alternatives", func(s *usage.Sample) { s.Result.Request = "main/1g" }, "violated{main,a}=0"},
		{"a claim of the pod's own", func(s *usage.Sample) { s.Claim.Name = "mine" }, "violated{a}=0"},
		{"a claim of several pods", func(s *usage.Sample) { s.Claim.Pods = append(s.Claim.Pods, checkpoint.Pod{Name: "b"}) }, "violated{}=0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, registry := newMetrics(t)
			s := sample("a")
			tc.change(&s)
			m.Show([]usage.Sample{s})
			if got := series(t, registry, "sluice_share_"); !slices.Contains(got, tc.want) {
				t.Errorf("want %s in %v", tc.want, got)
			}
		})
	}
}

func TestWhatIsNotKnownHasNoSeriesOrStaysAsItWas(t *testing.T) {
	m, registry := newMetrics(t)
	m.Show([]usage.Sample{sample("a")})
	before := series(t, registry, "sluice_share_")
	blind := sample("a")
	blind.Known, blind.Held, blind.Ledger = false, 0, nil
	m.Show([]usage.Sample{blind})
	want := slices.DeleteFunc(before, func(s string) bool { return strings.HasPrefix(s, "memory_held") })
	if diff := cmp.Diff(want, series(t, registry, "sluice_share_")); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

func TestCountersNeverGoBack(t *testing.T) {
	m, registry := newMetrics(t)
	for _, refused := range []uint64{5, 2, 6} {
		s := sample("a")
		s.Ledger.Refused = refused
		m.Show([]usage.Sample{s})
	}
	if got := series(t, registry, "sluice_share_refused"); !slices.Contains(got, "_allocations_total{limit,main,a}=6") {
		t.Errorf("got %v", got)
	}
}

func TestThereAreNoMoreSeriesThanTheBound(t *testing.T) {
	m, registry := newMetrics(t)
	var many []usage.Sample
	for i := range 1030 {
		many = append(many, sample(fmt.Sprintf("p%d", i)))
	}
	m.Show(many)
	if got := len(series(t, registry, "sluice_share_violated")); got != 1024 {
		t.Errorf("%d shares have series, want 1024", got)
	}
	if diff := cmp.Diff([]string{"{}=6"}, series(t, registry, "sluice_agent_untracked_shares")); diff != "" {
		t.Errorf("untracked (-want +got):\n%s", diff)
	}
}

// hardware is one of which one GPU does not answer.
type hardware struct{ sick bool }

func (h *hardware) MemoryUsed(_ context.Context, uuid string) (uint64, error) {
	if h.sick && uuid == "GPU-1" {
		return 0, errors.New("injected")
	}
	return gibi, nil
}

func (*hardware) Published() (checkpoint.Published, error) {
	of := func(minor int, uuid string) checkpoint.PublishedGPU {
		return checkpoint.PublishedGPU{Minor: minor, Facts: checkpoint.Facts{UUID: uuid}, Form: v1alpha1.GPUDecision{UUID: uuid}}
	}
	return checkpoint.Published{GPUs: []checkpoint.PublishedGPU{of(0, "GPU-0"), of(1, "GPU-1")}}, nil
}

func TestGPUs(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := usage.NewGPUMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	h := &hardware{}
	meter := &usage.Meter{Hardware: h, Records: h, Metrics: metrics, Log: logr.Discard()}
	if err := meter.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.sick = true
	if err := meter.Look(t.Context()); err == nil {
		t.Error("a GPU that does not answer is no error")
	}
	metrics.Show([]usage.GPU{{UUID: "GPU-9"}})
	metrics.Show([]usage.GPU{{UUID: "GPU-0", Physical: 4, Published: 6, Committed: 2, Tenants: 3, Instances: map[string]int{"1g": 7}}})
	want := []string{
		"memory_bytes{committed,GPU-0}=2", "memory_bytes{physical,GPU-0}=4", "memory_bytes{published,GPU-0}=6",
		"memory_used_bytes{GPU-0}=1.073741824e+09", "mig_instances{1g,GPU-0}=7", "tenants{GPU-0}=3",
	}
	got := series(t, registry, "sluice_gpu_")
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}
