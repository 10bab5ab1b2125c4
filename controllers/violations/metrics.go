// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of evictions.
const (
	resultGranted = "granted"
	resultBlocked = "blocked"
)

// metrics count evictions.
type metrics struct {
	evictions *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_violation_evictions_total",
		Help: "Evictions asked for because a share is not kept to, by the pod's namespace: granted, or blocked as a disruption budget demands.",
	}, []string{"namespace", "result"})}
	if err := registerer.Register(m.evictions); err != nil {
		return nil, fmt.Errorf("registering the metrics of violations: %w", err)
	}
	return m, nil
}

func (m *metrics) count(namespace, result string) {
	m.evictions.WithLabelValues(namespace, result).Inc()
}
