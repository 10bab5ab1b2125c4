// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/go-logr/logr"

	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// Period is the time between two questions to NVML.
const Period = 15 * time.Second

// Hardware is the NVML door.
type Hardware interface {
	MemoryUsed(ctx context.Context, gpuUUID string) (uint64, error)
}

// Records is the checkpoint.
type Records interface {
	Published() (checkpoint.Published, error)
}

// Meter asks how much of each GPU's memory is taken. Only the node's active agent has one.
type Meter struct {
	Hardware Hardware
	Records  Records
	Metrics  *GPUMetrics
	Log      logr.Logger
}

// Run asks until the context ends. A GPU that does not answer has no figure; why is said where its health is.
func (m *Meter) Run(ctx context.Context, c clock.WithTicker) {
	ticker := c.NewTicker(Period)
	defer ticker.Stop()
	for {
		if err := m.Look(ctx); err != nil && ctx.Err() == nil {
			m.Log.V(1).Info("Not every GPU says how much of its memory is taken", "err", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Look asks every GPU that is published once.
func (m *Meter) Look(ctx context.Context) error {
	published, err := m.Records.Published()
	if err != nil {
		return fmt.Errorf("reading the published devices: %w", err)
	}
	var failed error
	for _, g := range published.GPUs {
		bytes, err := m.Hardware.MemoryUsed(ctx, g.Facts.UUID)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		m.Metrics.used.set(float64(bytes), devices.Name(g.Minor), g.Facts.UUID, g.Form.Pool)
	}
	m.Metrics.used.sweep()
	return failed
}
