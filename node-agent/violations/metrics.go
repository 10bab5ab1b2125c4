// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/internal/violation"
)

// Metrics are what was found.
type Metrics struct {
	now        *prometheus.GaugeVec
	total      *prometheus.CounterVec
	unverified prometheus.Gauge
	killed     prometheus.Counter
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		now: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_agent_violations", Help: "Shares of the node that are not kept to now, by reason: OverLimit or UnregisteredProcess.",
		}, []string{"reason"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_agent_violations_total", Help: "Violations that pods were told of, by reason.",
		}, []string{"reason"}),
		unverified: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_agent_unverified_figures", Help: "Processes and devices of shares for which NVML has no figure now.",
		}),
		killed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_agent_killed_processes_total", Help: "Processes that were killed because the pool says so of violations.",
		}),
	}
	for _, c := range []prometheus.Collector{m.now, m.total, m.unverified, m.killed} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of violations: %w", err)
		}
	}
	for _, reason := range []violation.Reason{violation.OverLimit, violation.UnregisteredProcess} {
		m.now.WithLabelValues(string(reason))
		m.total.WithLabelValues(string(reason))
	}
	return m, nil
}

func (m *Metrics) found(r Report) {
	count := map[violation.Reason]int{violation.OverLimit: 0, violation.UnregisteredProcess: 0}
	for _, v := range r.Violations {
		count[violation.Reason(v.Reason)]++
	}
	for reason, n := range count {
		m.now.WithLabelValues(string(reason)).Set(float64(n))
	}
	m.unverified.Set(float64(len(r.Unverified)))
}

func (m *Metrics) tell(reason string) { m.total.WithLabelValues(reason).Inc() }

func (m *Metrics) kill() { m.killed.Inc() }
