// SPDX-License-Identifier: Apache-2.0

package standing

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/internal/quota"
)

// metrics are the gauges of quotas.
type metrics struct {
	used     *prometheus.GaugeVec
	hard     *prometheus.GaugeVec
	borrowed *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	labels := []string{"namespace", "quota", "resource"}
	m := &metrics{
		used: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_quota_used", Help: "What allocated claims hold of a quota; memory in bytes, compute in percent of one GPU.",
		}, labels),
		hard: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_quota_hard", Help: "The most that a quota allows; memory in bytes, compute in percent of one GPU.",
		}, labels),
		borrowed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_quota_borrowed", Help: "What is held above a quota's guarantee; memory in bytes, compute in percent of one GPU.",
		}, labels),
	}
	for _, c := range []prometheus.Collector{m.used, m.hard, m.borrowed} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of quotas: %w", err)
		}
	}
	return m, nil
}

// set shows a quota's amounts, and no others.
func (m *metrics) set(q *quota.Quota, s quota.Standing) {
	replace(m.used, q, s.Used)
	replace(m.hard, q, q.Hard)
	replace(m.borrowed, q, s.Borrowed)
}

// replace shows amounts instead of those before: a quota may name others now.
func replace(gauge *prometheus.GaugeVec, q *quota.Quota, amounts quota.Amounts) {
	gauge.DeletePartialMatch(prometheus.Labels{"namespace": q.Namespace, "quota": q.Name})
	for name, value := range amounts {
		gauge.WithLabelValues(q.Namespace, q.Name, name).Set(float64(value))
	}
}

func (m *metrics) forget(key types.NamespacedName) {
	labels := prometheus.Labels{"namespace": key.Namespace, "quota": key.Name}
	for _, gauge := range []*prometheus.GaugeVec{m.used, m.hard, m.borrowed} {
		gauge.DeletePartialMatch(labels)
	}
}
