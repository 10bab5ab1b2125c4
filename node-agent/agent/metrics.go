// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	judged "github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/usage"
	"github.com/sluice-gpu/sluice/node-agent/violations"
)

// Metrics are the agent's.
type Metrics struct {
	// Arbiter is for the arbiter of GPU time.
	Arbiter *arbiter.Metrics
	// Violations are of shares that are not kept to.
	Violations *violations.Metrics
	// Shares and GPUs are of what is held and done.
	Shares *usage.Metrics
	GPUs   *usage.GPUMetrics

	claims  *prometheus.HistogramVec
	passes  *prometheus.CounterVec
	gpus    prometheus.Gauge
	written *prometheus.CounterVec
	sick    *prometheus.GaugeVec
	xids    *prometheus.CounterVec
	mps     mpsMetrics
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		claims: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_agent_claim_duration_seconds", Help: "Time to prepare or release a claim, by what was done and how it ended.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"step", "result"}),
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_agent_passes_total", Help: "Passes over everything, by how they ended.",
		}, []string{"result"}),
		gpus: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_agent_published_gpus", Help: "GPUs that the node offers to the scheduler.",
		}),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_agent_resourceslice_writes_total", Help: "Writes of ResourceSlices sent to the API server, by method.",
		}, []string{"method"}),
		sick: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_agent_gpu_health", Help: "1 for the state that a GPU is in, by UUID and state: Healthy, Suspect or Lost.",
		}, []string{"uuid", "state"}),
		xids: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_agent_xids_total", Help: "Error reports of the driver, by the GPU's UUID, their number (XID) and what they mean for it.",
		}, []string{"uuid", "xid", "class"}),
	}
	m.mps = newMPSMetrics()
	for _, c := range append(m.mps.all(), m.claims, m.passes, m.gpus, m.written, m.sick, m.xids) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics: %w", err)
		}
	}
	var err error
	if m.Arbiter, err = arbiter.NewMetrics(registry); err != nil {
		return nil, fmt.Errorf("making the metrics of GPU time: %w", err)
	}
	if m.Violations, err = violations.NewMetrics(registry); err != nil {
		return nil, fmt.Errorf("making the metrics of violations: %w", err)
	}
	if m.Shares, err = usage.NewMetrics(registry); err != nil {
		return nil, fmt.Errorf("making the metrics of shares: %w", err)
	}
	if m.GPUs, err = usage.NewGPUMetrics(registry); err != nil {
		return nil, fmt.Errorf("making the metrics of GPUs: %w", err)
	}
	return m, nil
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

func (m *Metrics) claim(step string, took time.Duration, err error) {
	m.claims.WithLabelValues(step, result(err)).Observe(took.Seconds())
}

func (m *Metrics) passed(err error) { m.passes.WithLabelValues(result(err)).Inc() }

func (m *Metrics) offered(gpus int) { m.gpus.Set(float64(gpus)) }

// health says how a GPU is; "" where nobody knows.
func (m *Metrics) health(uuid string, state v1alpha1.HealthState) {
	for _, s := range []v1alpha1.HealthState{v1alpha1.HealthHealthy, v1alpha1.HealthSuspect, v1alpha1.HealthLost} {
		value := 0.0
		if s == state {
			value = 1
		}
		m.sick.WithLabelValues(uuid, string(s)).Set(value)
	}
}

// XID counts an error report of the driver.
func (m *Metrics) XID(uuid string, number uint64, class judged.Class) {
	m.xids.WithLabelValues(uuid, strconv.FormatUint(number, 10), string(class)).Inc()
}

// CountWrites counts the writes of ResourceSlices that pass through a transport. The library that writes them does not
// tell how often it does.
func (m *Metrics) CountWrites(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/resourceslices") {
			m.written.WithLabelValues(r.Method).Inc()
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip sends the request on.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
