// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count evictions.
type metrics struct {
	evictions *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_pool_evictions_total",
		Help: "Evictions asked for so that GPUs of a pool can change: granted, or blocked by a PodDisruptionBudget.",
	}, []string{"pool", "result"})}
	if err := registerer.Register(m.evictions); err != nil {
		return nil, fmt.Errorf("registering the rollouts' metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) count(pool string, o outcome) {
	m.evictions.WithLabelValues(pool, "granted").Add(float64(len(o.done)))
	m.evictions.WithLabelValues(pool, "blocked").Add(float64(len(o.blocked)))
}
