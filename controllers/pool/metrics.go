// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/poolstatus"
)

// metrics are the pools' gauges.
type metrics struct {
	gpus     *prometheus.GaugeVec
	memory   *prometheus.GaugeVec
	compute  *prometheus.GaugeVec
	tenants  *prometheus.GaugeVec
	rollout  *prometheus.GaugeVec
	schedule *prometheus.GaugeVec
	repack   *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		gpus: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_gpus", Help: "GPUs of a pool: held by it, published for scheduling, allocated to a claim, unhealthy, excluded.",
		}, []string{"pool", "state"}),
		memory: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_memory_bytes", Help: "GPU memory of a pool: physical, published for scheduling, allocated to claims.",
		}, []string{"pool", "state"}),
		compute: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_compute_gpus", Help: "Compute of a pool, in GPUs: physical, published for scheduling, allocated to claims.",
		}, []string{"pool", "state"}),
		tenants: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_tenants", Help: "Claims that have something of a pool.",
		}, []string{"pool"}),
		rollout: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_rollout_gpus", Help: "GPUs of a pool by how far the change to the form that it wants has come.",
		}, []string{"pool", "state"}),
		schedule: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_schedule_active", Help: "1 for the schedule of a pool that is in force.",
		}, []string{"pool", "schedule"}),
		repack: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_pool_repacking_gain", Help: "How many more MIG instances of a profile would fit if GPUs were drained and packed anew.",
		}, []string{"pool", "profile"}),
	}
	for _, c := range []prometheus.Collector{m.gpus, m.memory, m.compute, m.tenants, m.rollout, m.schedule, m.repack} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the pools' metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) set(pool string, status v1alpha1.GPUPoolStatus, use poolstatus.Use) {
	for state, percent := range map[string]int64{"physical": use.Physical, "published": use.Published, "allocated": use.Allocated} {
		m.compute.WithLabelValues(pool, state).Set(float64(percent) / 100)
	}
	m.tenants.WithLabelValues(pool).Set(float64(use.Tenants))
	counts := status.GPUs
	for state, n := range map[string]*int32{
		"held": counts.Held, "published": counts.Published, "allocated": counts.Allocated,
		"unhealthy": counts.Unhealthy, "excluded": counts.Excluded,
	} {
		m.gpus.WithLabelValues(pool, state).Set(float64(ptr.Deref(n, 0)))
	}
	m.setChange(pool, status)
	sums := status.Memory
	for state, n := range map[string]*resource.Quantity{
		"physical": sums.Physical, "published": sums.Published, "allocated": sums.Allocated,
	} {
		m.memory.WithLabelValues(pool, state).Set(bytesOf(n))
	}
}

// setChange says how far a pool is from what it wants, and why it wants that now.
func (m *metrics) setChange(pool string, status v1alpha1.GPUPoolStatus) {
	counts := status.Rollout
	for state, n := range map[string]*int32{
		"done": counts.Done, "changing": counts.Changing, "waiting": counts.Waiting, "refused": counts.Refused, "away": counts.Away,
	} {
		m.rollout.WithLabelValues(pool, state).Set(float64(ptr.Deref(n, 0)))
	}
	m.schedule.DeletePartialMatch(prometheus.Labels{"pool": pool})
	if active := status.Schedule.Active; active != "" {
		m.schedule.WithLabelValues(pool, active).Set(1)
	}
	m.repack.DeletePartialMatch(prometheus.Labels{"pool": pool})
	for _, gain := range status.Repacking {
		m.repack.WithLabelValues(pool, gain.Profile).Set(float64(ptr.Deref(gain.AfterDrain, 0) - ptr.Deref(gain.Now, 0)))
	}
}

func (m *metrics) forget(pool string) {
	for _, gauge := range []*prometheus.GaugeVec{m.gpus, m.memory, m.compute, m.tenants, m.rollout, m.schedule, m.repack} {
		gauge.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}

func bytesOf(q *resource.Quantity) float64 {
	if q == nil {
		return 0
	}
	return float64(q.Value())
}
