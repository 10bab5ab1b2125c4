// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// GPU is a GPU at one look.
type GPU struct {
	// Device is its name, UUID its identity, and Pool the GPUPool that it is published for; "" for none.
	Device, UUID, Pool string
	// Physical, Published and Committed are bytes: what CUDA can use, what is offered to the scheduler, what claims were granted.
	Physical, Published, Committed int64
	// Tenants is how many claims have something of it.
	Tenants int
	// Instances counts its MIG instances, by profile.
	Instances map[string]int
}

// GPUMetrics are those of GPUs.
type GPUMetrics struct {
	memory, tenants, instances, used *gauges
}

// NewGPUMetrics makes the metrics and registers them.
func NewGPUMetrics(registry prometheus.Registerer) (*GPUMetrics, error) {
	m := &GPUMetrics{
		memory: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_gpu_memory_bytes", Help: "Memory of a GPU, by state: physical, published for scheduling, committed to claims.",
		}, []string{"device", "uuid", "pool", "state"})),
		tenants: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_gpu_tenants", Help: "Claims that have something of a GPU.",
		}, []string{"device", "uuid", "pool"})),
		instances: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_gpu_mig_instances", Help: "MIG instances that exist on a GPU, by profile.",
		}, []string{"device", "uuid", "pool", "profile"})),
		used: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_gpu_memory_used_bytes", Help: "Memory of a GPU that is taken, whoever has it, as NVML says; absent where it does not.",
		}, []string{"device", "uuid", "pool"})),
	}
	for _, c := range []prometheus.Collector{m.memory.vec, m.tenants.vec, m.instances.vec, m.used.vec} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of GPUs: %w", err)
		}
	}
	return m, nil
}

// Show shows the GPUs of a look, and no others.
func (m *GPUMetrics) Show(gpus []GPU) {
	for _, g := range gpus {
		for state, bytes := range map[string]int64{"physical": g.Physical, "published": g.Published, "committed": g.Committed} {
			m.memory.set(float64(bytes), g.Device, g.UUID, g.Pool, state)
		}
		m.tenants.set(float64(g.Tenants), g.Device, g.UUID, g.Pool)
		for profile, count := range g.Instances {
			m.instances.set(float64(count), g.Device, g.UUID, g.Pool, profile)
		}
	}
	for _, g := range []*gauges{m.memory, m.tenants, m.instances} {
		g.sweep()
	}
}
