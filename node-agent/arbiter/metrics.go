// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	decide "github.com/sluice-gpu/sluice/internal/arbiter"
)

// Metrics are the arbiter's.
type Metrics struct {
	slices, overruns prometheus.Counter
	lateness         prometheus.Histogram
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		slices: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_arbiter_slices_total", Help: "Slices of GPU time that were opened.",
		}),
		overruns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_arbiter_overruns_total", Help: "Slices whose work did not drain in time, so that others ran beside it.",
		}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_arbiter_late_seconds", Help: "How much later than planned the arbiter's thread woke.",
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .05, .25},
		}),
	}
	for _, c := range []prometheus.Collector{m.slices, m.overruns, m.lateness} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering the arbiter's metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) slice() { m.slices.Inc() }

func (m *Metrics) overrun() { m.overruns.Inc() }

func (m *Metrics) late(by decide.Time) { m.lateness.Observe(float64(by) / 1e9) }
