// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the queues did.
type metrics struct {
	waiting  *prometheus.GaugeVec
	releases *prometheus.CounterVec
	waits    prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_queue_waiting", Help: "Pods that wait for room in their namespace's quota.",
		}, []string{"namespace"}),
		releases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_queue_releases_total", Help: "Pods that were let go, because there was room in their namespace's quota.",
		}, []string{"namespace"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_queue_wait_seconds", Help: "How long pods waited for room in their namespace's quota, from their creation.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		}),
	}
	for _, c := range []prometheus.Collector{m.waiting, m.releases, m.waits} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the queues' metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) released(namespace string, waited time.Duration) {
	m.releases.WithLabelValues(namespace).Inc()
	m.waits.Observe(max(0, waited).Seconds())
}

func (m *metrics) length(namespace string, waiting int32) {
	m.waiting.WithLabelValues(namespace).Set(float64(waiting))
}

// forget drops a namespace that has no quota any more.
func (m *metrics) forget(namespace string) {
	m.waiting.DeleteLabelValues(namespace)
	m.releases.DeleteLabelValues(namespace)
}
