// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// key tells label values apart: no name of Kubernetes has a NUL.
func key(labels []string) string { return strings.Join(labels, "\x00") }

// gauges are series of one metric, of which those that were not set since the last sweep are removed by the next.
type gauges struct {
	vec         *prometheus.GaugeVec
	now, before map[string][]string
}

func newGauges(vec *prometheus.GaugeVec) *gauges {
	return &gauges{vec: vec, now: map[string][]string{}, before: map[string][]string{}}
}

func (g *gauges) set(value float64, labels ...string) {
	g.vec.WithLabelValues(labels...).Set(value)
	g.now[key(labels)] = labels
}

// keep leaves a series as it is, if there is one.
func (g *gauges) keep(labels ...string) {
	if _, there := g.before[key(labels)]; there {
		g.now[key(labels)] = labels
	}
}

func (g *gauges) sweep() {
	for k, labels := range g.before {
		if _, still := g.now[k]; !still {
			g.vec.DeleteLabelValues(labels...)
		}
	}
	g.before, g.now = g.now, map[string][]string{}
}

// counters are series of one metric that follow totals which somebody else keeps, and never go back.
type counters struct {
	vec         *prometheus.CounterVec
	now, before map[string]total
}

type total struct {
	labels []string
	value  float64
}

func newCounters(vec *prometheus.CounterVec) *counters {
	return &counters{vec: vec, now: map[string]total{}, before: map[string]total{}}
}

// reach brings a series to a total. A total that has become less is not believed.
func (c *counters) reach(value float64, labels ...string) {
	last := c.before[key(labels)].value
	c.vec.WithLabelValues(labels...).Add(max(0, value-last))
	c.now[key(labels)] = total{labels: labels, value: max(value, last)}
}

// keep leaves a series as it is, if there is one.
func (c *counters) keep(labels ...string) {
	if t, there := c.before[key(labels)]; there {
		c.now[key(labels)] = t
	}
}

func (c *counters) sweep() {
	for k, t := range c.before {
		if _, still := c.now[k]; !still {
			c.vec.DeleteLabelValues(t.labels...)
		}
	}
	c.before, c.now = c.now, map[string]total{}
}
