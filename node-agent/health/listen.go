// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// listen hears error reports until the context ends. Whatever goes wrong, it listens anew: an error that was missed still
// shows in the recovery action that the driver asks for.
func (m *Monitor) listen(ctx context.Context) {
	trouble := ""
	for ctx.Err() == nil {
		err := m.hear(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			trouble = ""
			continue
		case err.Error() != trouble && !errors.Is(err, nvml.ErrNotFound):
			m.Log.Info("The driver's error reports are not heard; it is tried again", "err", err.Error())
		}
		trouble = err.Error()
		if !m.pause(ctx, m.Times.Retry) {
			return
		}
	}
}

// pause is false where the context ends.
func (m *Monitor) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-m.Clock.After(d):
		return true
	}
}

// hear listens to the GPUs that answer, until others do or something goes wrong.
func (m *Monitor) hear(ctx context.Context) error {
	uuids := m.audible()
	if len(uuids) == 0 {
		m.pause(ctx, m.Times.Listen)
		return nil
	}
	events, err := m.Hardware.Events(ctx, uuids)
	if err != nil {
		return err //nolint:wrapcheck // it says what was being done
	}
	defer events.Close()
	for ctx.Err() == nil && slices.Equal(uuids, m.audible()) {
		event, came, err := events.Wait(m.Times.Listen)
		if err != nil {
			return err //nolint:wrapcheck // it says what was being done
		}
		if came {
			m.heard(event)
		}
	}
	return nil
}

// audible are the GPUs that answered when they were last looked at.
func (m *Monitor) audible() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.answering))
}

// heard notes an error report. One that an application caused is counted, and no more: it can come in thousands.
func (m *Monitor) heard(event nvml.Event) {
	class := health.ClassOf(event.XID)
	m.Counter.XID(event.UUID, event.XID, class)
	if class == health.Application {
		m.Log.V(1).Info("An application caused an error", "gpu", event.UUID, "what", health.Describe(event.XID), "instance", event.GIID)
		return
	}
	m.Log.Info("The driver reported an error", "gpu", event.UUID, "what", health.Describe(event.XID), "class", class, "instance", event.GIID)
	m.mu.Lock()
	m.keep(event.UUID, m.courses[event.UUID].Reported(event.XID, m.Clock.Now(), m.Rules))
	m.mu.Unlock()
	m.Changed()
}
