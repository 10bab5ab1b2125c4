// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/clock"
)

// healthPeriod is how often kubelet is told what it knows; after 30 s without a word it takes a device for unknown.
const healthPeriod = 10 * time.Second

// DeviceHealth is how an offered device is.
type DeviceHealth struct {
	Device  string
	Healthy bool
	// Message says what is wrong.
	Message string
}

// Health is what kubelet is told about devices, which it shows in the status of their pods. Before the first report it is
// told nothing. It is safe for concurrent use.
type Health struct {
	NodeName string
	Clock    clock.Clock

	mu       sync.Mutex
	devices  []DeviceHealth
	reported bool
	changed  chan struct{} // closed with the next change
}

// Report says how all devices are.
func (h *Health) Report(devices []DeviceHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reported && slices.Equal(h.devices, devices) {
		return
	}
	h.devices, h.reported = devices, true
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// now is what is to be told, and a channel that closes when that changes.
func (h *Health) now() (report kubeletplugin.DeviceHealthReport, reported bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	now := h.Clock.Now()
	for _, d := range h.devices {
		status := kubeletplugin.HealthStatusHealthy
		if !d.Healthy {
			status = kubeletplugin.HealthStatusUnhealthy
		}
		report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{
			PoolName: h.NodeName, DeviceName: d.Device, Health: status, LastUpdated: now, Message: d.Message,
		})
	}
	return report, h.reported, h.changed
}

// watch sends all devices at once, with each change, and again before kubelet forgets, until the context ends.
func (h *Health) watch(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		report, reported, changed := h.now()
		if reported {
			select {
			case <-ctx.Done():
				return nil
			case reports <- report:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-h.Clock.After(healthPeriod):
		}
	}
}
