// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// metrics are the pools' gauges.
type metrics struct {
	gpus   *prometheus.GaugeVec
	memory *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		gpus: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_gpus", Help: "GPUs of a pool: held by it, published for scheduling, allocated to a claim.",
		}, []string{"pool", "state"}),
		memory: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_memory_bytes", Help: "GPU memory of a pool: physical, published for scheduling, allocated to claims.",
		}, []string{"pool", "state"}),
	}
	for _, c := range []prometheus.Collector{m.gpus, m.memory} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the pools' metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) set(pool string, status v1alpha1.GPUPoolStatus) {
	counts := status.GPUs
	for state, n := range map[string]*int32{
		"held": counts.Held, "published": counts.Published, "allocated": counts.Allocated,
	} {
		m.gpus.WithLabelValues(pool, state).Set(float64(ptr.Deref(n, 0)))
	}
	sums := status.Memory
	for state, n := range map[string]*resource.Quantity{
		"physical": sums.Physical, "published": sums.Published, "allocated": sums.Allocated,
	} {
		m.memory.WithLabelValues(pool, state).Set(bytesOf(n))
	}
}

func (m *metrics) forget(pool string) {
	m.gpus.DeletePartialMatch(prometheus.Labels{"pool": pool})
	m.memory.DeletePartialMatch(prometheus.Labels{"pool": pool})
}

func bytesOf(q *resource.Quantity) float64 {
	if q == nil {
		return 0
	}
	return float64(q.Value())
}
