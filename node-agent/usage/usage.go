// SPDX-License-Identifier: Apache-2.0

// Package usage shows in metrics what the shares and GPUs of the node hold and do. Series go when what they are about goes.
package usage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// maxShares bounds the shares that have series of their own: 64 GPUs could have more. Those that have none are counted.
const maxShares = 1024

// claimPart is what is between the names of pod and suffix in the name of a claim that Sluice's admission made for a pod.
const claimPart = "-sluice-"

// Sample is a share at one look.
type Sample struct {
	Claim  checkpoint.Claim
	Result checkpoint.Result
	// Device is the UUID of the GPU or MIG instance, Pool the GPUPool that it is of.
	Device, Pool string
	Words        limits.Words
	// Ledger is what its processes say; nil where that cannot be read.
	Ledger *limits.Ledger
	// Held is what NVML says of them; Known is false where it does not.
	Held  uint64
	Known bool
	// Violated is true where the share is not kept to.
	Violated bool
}

// shareLabels are those of every series of a share.
func shareLabels(more ...string) []string {
	return append([]string{"namespace", "pod", "container", "claim", "result", "device", "uuid", "pool"}, more...)
}

// labels are the values of shareLabels. A share that several pods have is none pod's, and a request that somebody else has
// named says nothing about a container.
func (s Sample) labels() []string {
	pod, container := "", ""
	if len(s.Claim.Pods) == 1 {
		pod = s.Claim.Pods[0].Name
		if strings.HasPrefix(s.Claim.Name, pod+claimPart) {
			container, _, _ = strings.Cut(s.Result.Request, "/")
		}
	}
	return []string{s.Claim.Namespace, pod, container, s.Claim.Name, strconv.Itoa(s.Result.Index), s.Result.Device, s.Device, s.Pool}
}

// Metrics are those of shares.
type Metrics struct {
	used, held, limit, peak, processes, violated, compute *gauges
	gpuTime, waitTime, refused                            *counters
	untracked                                             prometheus.Gauge

	peaks map[string]float64
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		used: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_share_memory_used_bytes", Help: "GPU memory that the share's processes hold, as they keep account of it.",
		}, shareLabels())),
		held: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_share_memory_held_bytes", Help: "GPU memory that the share's processes hold, as NVML says; absent where it does not.",
		}, shareLabels())),
		limit: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_share_memory_limit_bytes", Help: "GPU memory that the share's processes may hold together.",
		}, shareLabels())),
		peak: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_share_memory_peak_bytes", Help: "The most GPU memory that the share was seen to hold, by its account or NVML's, since the agent started.",
		}, shareLabels())),
		processes: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_share_processes", Help: "Processes of the share that the library knows.",
		}, shareLabels())),
		violated: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_share_violated", Help: "1 where the share holds more than it may, or is used past the library.",
		}, shareLabels())),
		compute: newGauges(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_share_compute_ratio", Help: "Part of the device's time that the share asked for, 0 to 1; 0 is best effort.",
		}, shareLabels())),
		gpuTime: newCounters(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_share_gpu_seconds_total", Help: "GPU time of work that the share's processes have finished, as they measured it beside others.",
		}, shareLabels())),
		waitTime: newCounters(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_share_wait_seconds_total", Help: "Time that launches of the share's processes waited for their turn.",
		}, shareLabels())),
		refused: newCounters(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_share_refused_allocations_total", Help: "Allocations that were refused, by the share's limit or by the driver within it.",
		}, shareLabels("by"))),
		untracked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_agent_untracked_shares", Help: "Shares of the node that have no series of their own, because there are too many.",
		}),
		peaks: map[string]float64{},
	}
	for _, c := range []prometheus.Collector{
		m.used.vec, m.held.vec, m.limit.vec, m.peak.vec, m.processes.vec, m.violated.vec, m.compute.vec,
		m.gpuTime.vec, m.waitTime.vec, m.refused.vec, m.untracked,
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of shares: %w", err)
		}
	}
	return m, nil
}

// Show shows the shares of a look, and no others.
func (m *Metrics) Show(samples []Sample) {
	m.untracked.Set(float64(max(0, len(samples)-maxShares)))
	peaks := map[string]float64{}
	for _, s := range samples[:min(len(samples), maxShares)] {
		m.show(s, peaks)
	}
	m.peaks = peaks
	for _, g := range []*gauges{m.used, m.held, m.limit, m.peak, m.processes, m.violated, m.compute} {
		g.sweep()
	}
	for _, c := range []*counters{m.gpuTime, m.waitTime, m.refused} {
		c.sweep()
	}
}

func (m *Metrics) show(s Sample, peaks map[string]float64) {
	labels := s.labels()
	with := func(more ...string) []string { return append(labels[:len(labels):len(labels)], more...) }
	m.limit.set(float64(s.Words.MemoryLimit), labels...)
	m.compute.set(float64(s.Words.ComputeShare)/10000, labels...)
	violated := 0.0
	if s.Violated {
		violated = 1
	}
	m.violated.set(violated, labels...)
	peak := m.peaks[key(labels)]
	if s.Known {
		m.held.set(float64(s.Held), labels...)
		peak = max(peak, float64(s.Held))
	}
	if s.Ledger == nil {
		for _, g := range []*gauges{m.used, m.processes} {
			g.keep(labels...)
		}
		m.gpuTime.keep(labels...)
		m.waitTime.keep(labels...)
		m.refused.keep(with("limit")...)
		m.refused.keep(with("driver")...)
	} else {
		used := float64(s.Ledger.Orphaned)
		for _, h := range s.Ledger.Holders {
			used += float64(h.Held)
		}
		peak = max(peak, used)
		m.used.set(used, labels...)
		m.processes.set(float64(len(s.Ledger.Holders)), labels...)
		m.gpuTime.reach(float64(s.Ledger.GPUTime)/1e9, labels...)
		m.waitTime.reach(float64(s.Ledger.WaitTime)/1e9, labels...)
		m.refused.reach(float64(s.Ledger.Refused), with("limit")...)
		m.refused.reach(float64(s.Ledger.RefusedByDriver), with("driver")...)
	}
	m.peak.set(peak, labels...)
	peaks[key(labels)] = peak
}
