// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// bring does what was decided for one GPU, step by step, and stops at the first that fails. Each step leaves the GPU in a
// state from which the next call goes on.
func (d *Divider) bring(ctx context.Context, w work, recorded checkpoint.Claims) publish.Trouble {
	log := d.Log.WithValues("gpu", w.uuid)
	if w.foreign != "" {
		log.Info("Repairing what somebody else did to MIG instances", "what", w.foreign)
	}
	if w.turnOn {
		log.Info("Turning on MIG mode")
		if err := d.Hardware.SetMIGMode(ctx, w.uuid, true); err != nil {
			return trouble(d.named(ctx, err, w.uuid, wholeGPU, recorded))
		}
	}
	for _, i := range w.destroy {
		log.Info("Destroying a MIG instance that is not wanted", "profile", i.Profile, "start", i.Start)
		if err := d.Hardware.DestroyInstance(ctx, w.uuid, i.GIID); err != nil {
			return trouble(d.named(ctx, err, w.uuid, i.GIID, recorded))
		}
	}
	for _, i := range w.complete {
		log.Info("Completing a MIG instance", "profile", i.Profile, "start", i.Start)
		if err := d.fill(ctx, w.uuid, i.GIID); err != nil {
			return trouble(err)
		}
	}
	for _, p := range w.create {
		log.Info("Making a MIG instance", "profile", p.Profile, "start", p.Start)
		if err := d.create(ctx, w.uuid, p); err != nil {
			return trouble(err)
		}
	}
	return publish.Trouble{}
}

// create makes an instance with its compute instance, or nothing.
func (d *Divider) create(ctx context.Context, uuid string, p gpu.Placement) error {
	// The turn is over: what is left is done the next time.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("making MIG instance %s at %d: %w", p.Profile, p.Start, context.Cause(ctx))
	}
	giID, err := d.Hardware.CreateGPUInstance(ctx, uuid, p)
	if err != nil {
		return err //nolint:wrapcheck // the door's errors say what was being done
	}
	return d.fill(ctx, uuid, giID)
}

// fill makes the compute instance of a GPU instance. One that cannot be filled is of no use, so it is destroyed.
func (d *Divider) fill(ctx context.Context, uuid string, giID int) error {
	_, _, err := d.Hardware.CreateComputeInstance(ctx, uuid, giID)
	if err == nil {
		return nil
	}
	if undoErr := d.Hardware.DestroyInstance(context.WithoutCancel(ctx), uuid, giID); undoErr != nil {
		return fmt.Errorf("%w; taking it back failed too: %w", err, undoErr)
	}
	return err //nolint:wrapcheck // the door's errors say what was being done
}

// named adds to an nvml.ErrInUse who is in the way, where NVML knows.
func (d *Divider) named(ctx context.Context, err error, uuid string, giID int, recorded checkpoint.Claims) error {
	if !errors.Is(err, nvml.ErrInUse) {
		return err
	}
	processes, askErr := d.Holders.On(ctx, uuid, recorded)
	names := onInstance(processes, giID)
	if askErr != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("used by %s: %w", strings.Join(names, ", "), err)
}

// trouble says what went wrong in a word of the API.
func trouble(err error) publish.Trouble {
	reason := v1alpha1.ReasonDivideFailed
	switch {
	case errors.Is(err, nvml.ErrInUse):
		reason = v1alpha1.ReasonInUse
	case errors.Is(err, context.DeadlineExceeded):
		reason = v1alpha1.ReasonDividing
	}
	return publish.Trouble{Reason: reason, Message: err.Error()}
}
