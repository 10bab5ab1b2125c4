// SPDX-License-Identifier: Apache-2.0

// Package measure finds out what CUDA contexts cost on the node's devices, by comparing what NVML says that the processes of
// shares hold with what their ledgers say. New shares are charged what it found; where a running share's contexts cost
// more than it charges, those that it still makes are charged the difference too.
package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/internal/contexts"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// Period is the time between two looks.
const Period = 10 * time.Second

// Records is the checkpoint.
type Records interface {
	Claims() (checkpoint.Claims, error)
	Published() (checkpoint.Published, error)
	Contexts() (checkpoint.Contexts, error)
	SaveContexts(c checkpoint.Contexts) error
}

// Hardware is the NVML door.
type Hardware interface {
	Processes(ctx context.Context, gpuUUID, deviceUUID string) ([]nvml.Process, error)
}

// Shares is the door to the share files.
type Shares interface {
	Words(claimUID string, index int) (limits.Words, error)
	Holders(claimUID string, index int) ([]limits.Holder, error)
	SetOverhead(claimUID string, index int, bytes uint64) error
}

// Meter measures. Only the node's active agent has one.
type Meter struct {
	Records  Records
	Hardware Hardware
	Shares   Shares
	Log      logr.Logger

	// known is nil until the record was read.
	known  map[contexts.Key]uint64
	memory contexts.Memory
}

// Run looks until the context ends. Trouble is logged once, and once more when it is over.
func (m *Meter) Run(ctx context.Context, c clock.WithTicker) {
	ticker := c.NewTicker(Period)
	defer ticker.Stop()
	trouble := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		text := ""
		err := m.Look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			text = err.Error()
		}
		switch {
		case text == trouble:
		case err != nil:
			m.Log.Error(err, "Not all contexts could be measured; it is tried again")
		default:
			m.Log.Info("Contexts can be measured again")
		}
		trouble = text
	}
}

// Look looks at all processes of shares once, and keeps and writes what that shows. What cannot be looked at takes nothing
// from the rest.
func (m *Meter) Look(ctx context.Context) error {
	m.load()
	sights, failed := m.gather(ctx)
	memory, findings := contexts.Look(m.memory, m.known, sights)
	m.memory = memory
	return errors.Join(failed, m.keep(findings.Figures), m.charge(findings.Overheads))
}

// load reads what was found before this agent. A record that cannot be read costs no more than measuring again.
func (m *Meter) load() {
	if m.known != nil {
		return
	}
	record, err := m.Records.Contexts()
	if err != nil {
		m.Log.Error(err, "What contexts were measured to cost is lost; they are measured again")
	}
	m.known = known(record)
}

// keep records figures that are new.
func (m *Meter) keep(figures map[contexts.Key]uint64) error {
	if len(figures) == 0 {
		return nil
	}
	all := maps.Clone(m.known)
	maps.Copy(all, figures)
	if err := m.Records.SaveContexts(record(all)); err != nil {
		return fmt.Errorf("recording what contexts cost: %w", err)
	}
	m.known = all
	for key, bytes := range figures {
		m.Log.Info("Measured what a CUDA context costs; new shares are charged it", "product", key.Product, "driver", key.Driver,
			"profile", key.Profile, "mode", key.Mode, "bytes", bytes)
	}
	return nil
}

// charge raises the overhead of shares.
func (m *Meter) charge(overheads map[contexts.Share]uint64) error {
	var failed []error
	for share, bytes := range overheads {
		err := m.Shares.SetOverhead(share.ClaimUID, share.Index, bytes)
		if errors.Is(err, limits.ErrNoShare) {
			continue // it ended meanwhile
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("charging share %d of claim %s more for a context: %w", share.Index, share.ClaimUID, err))
			continue
		}
		m.Log.Info("Contexts of a share cost more than they are charged; new ones are charged more",
			"claim", share.ClaimUID, "index", share.Index, "overhead", bytes)
	}
	return errors.Join(failed...)
}
