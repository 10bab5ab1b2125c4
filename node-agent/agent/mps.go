// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
)

// mpsMetrics are of the devices that are shared by MPS, by UUID. A device has none once its last tenant is gone.
type mpsMetrics struct{ daemons, clients, bypassing *prometheus.GaugeVec }

func newMPSMetrics() mpsMetrics {
	return mpsMetrics{
		daemons: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_agent_mps_daemon",
			Help: "1 where the MPS daemon of a device answers, 0 where it should and does not, by the device's UUID.",
		}, []string{"uuid"}),
		clients: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_agent_mps_clients", Help: "Processes that the MPS daemon of a device holds, by the device's UUID.",
		}, []string{"uuid"}),
		bypassing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_agent_mps_bypassing_processes",
			Help: "Processes on a device that is shared by MPS which its daemon does not hold, by the device's UUID.",
		}, []string{"uuid"}),
	}
}

func (m mpsMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.daemons, m.clients, m.bypassing}
}

// MPS says what was seen of the devices that are shared by MPS, which are all there are.
func (m *Metrics) MPS(counts []watch.Count) {
	for _, g := range []*prometheus.GaugeVec{m.mps.daemons, m.mps.clients, m.mps.bypassing} {
		g.Reset()
	}
	for _, c := range counts {
		answers := 0.0
		if c.Answers {
			answers = 1
		}
		m.mps.daemons.WithLabelValues(c.Device).Set(answers)
		m.mps.clients.WithLabelValues(c.Device).Set(float64(c.Clients))
		m.mps.bypassing.WithLabelValues(c.Device).Set(float64(c.Bypassing))
	}
}

// mpsFailed is why GPUs that are offered to be shared by MPS cannot be; nil where they can, or none is. The GPUs say so too: their
// claims are allocated all the same, and do not start.
func (a *Agent) mpsFailed(p plan) error {
	var uuids []string
	for _, o := range p.outcomes {
		if o.Form != nil && o.Form.Sharing == v1alpha1.SharingMPS {
			uuids = append(uuids, o.Facts.UUID)
		}
	}
	if len(uuids) == 0 {
		return nil
	}
	err := a.MPS.Program()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("no claim of a GPU that is shared by MPS can start: %w", err)
	for _, uuid := range uuids {
		p.remark(uuid, err.Error())
	}
	return err
}

var _ watch.Gauges = &Metrics{}
