// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what was taken back.
type metrics struct {
	evictions *prometheus.CounterVec
	refusals  *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_reclaim_evictions_total", Help: "Pods that were evicted from what their namespace had borrowed.",
		}, []string{"namespace"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_reclaim_blocked_total", Help: "Evictions of borrowed pods that the Eviction API refused, as a disruption budget demands.",
		}, []string{"namespace"}),
	}
	for _, c := range []prometheus.Collector{m.evictions, m.refusals} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering reclaim's metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) evicted(namespace string) { m.evictions.WithLabelValues(namespace).Inc() }

func (m *metrics) blocked(namespace string) { m.refusals.WithLabelValues(namespace).Inc() }
