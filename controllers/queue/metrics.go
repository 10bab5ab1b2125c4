// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the queues did.
type metrics struct {
	releases *prometheus.CounterVec
	waits    prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		releases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_queue_releases_total", Help: "Pods that were let go, because there was room in their namespace's quota.",
		}, []string{"namespace"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_queue_wait_seconds", Help: "How long pods waited for room in their namespace's quota, from their creation.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		}),
	}
	for _, c := range []prometheus.Collector{m.releases, m.waits} {
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

// Counts are the lengths of the queues, by namespace. Whoever writes quotas' status reads them.
type Counts struct {
	changed func(ledger string)

	mu      sync.Mutex
	lengths map[string]map[string]int32 // by ledger, then namespace
}

// NewCounts keeps the lengths of queues. It calls changed, if there is one, with each ledger where one changes.
func NewCounts(changed func(ledger string)) *Counts {
	return &Counts{changed: changed, lengths: map[string]map[string]int32{}}
}

// Waiting is how many pods of a namespace wait for room.
func (c *Counts) Waiting(ledger, namespace string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lengths[ledger][namespace]
}

func (c *Counts) set(ledger string, lengths map[string]int32) {
	if c.replace(ledger, lengths) && c.changed != nil {
		c.changed(ledger)
	}
}

func (c *Counts) replace(ledger string, lengths map[string]int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := maps.Equal(c.lengths[ledger], lengths)
	c.lengths[ledger] = lengths
	if len(lengths) == 0 {
		delete(c.lengths, ledger)
	}
	return !same
}
