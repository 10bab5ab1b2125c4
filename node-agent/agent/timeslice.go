// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// TimeSlicer sets how long a process computes on a GPU before another one has its turn.
type TimeSlicer interface {
	SetTimeSlice(ctx context.Context, gpuUUID string, slice v1alpha1.TimeSlice) error
}

// timeSliceUnknown stands for a setting that was made by an earlier agent, or that a new driver may have forgotten.
const timeSliceUnknown v1alpha1.TimeSlice = ""

// askedTimeSlice is what a form asks for; false where it leaves the setting alone.
func askedTimeSlice(form v1alpha1.GPUDecision) (v1alpha1.TimeSlice, bool) {
	return form.TimeSlice, form.Sharing == v1alpha1.SharingTimeSlicing && form.TimeSlice != ""
}

// rememberTimeSlices notes, from what was published before this agent, on which GPUs a setting was made.
func (a *Agent) rememberTimeSlices(before checkpoint.Published) {
	if a.memory.timeSlices != nil {
		return
	}
	a.memory.timeSlices = map[string]v1alpha1.TimeSlice{}
	for _, g := range before.GPUs {
		if _, asked := askedTimeSlice(g.Form); asked {
			a.memory.timeSlices[g.Facts.UUID] = timeSliceUnknown
		}
	}
}

// setTimeSlices brings the setting in line where a pool asks for one, and back to the default where none does any more. A
// GPU on which that fails is used all the same; its message says so.
func (a *Agent) setTimeSlices(ctx context.Context, w world, p plan) error {
	if w.failed != "" {
		for uuid := range a.memory.timeSlices {
			a.memory.timeSlices[uuid] = timeSliceUnknown
		}
		return nil
	}
	wanted := map[string]v1alpha1.TimeSlice{}
	for uuid := range a.memory.timeSlices {
		wanted[uuid] = v1alpha1.TimeSliceDefault
	}
	for _, g := range p.record.GPUs {
		if slice, asked := askedTimeSlice(g.Form); asked {
			wanted[g.Facts.UUID] = slice
		}
	}
	var failed []error
	for uuid, slice := range wanted {
		if now := a.memory.timeSlices[uuid]; now == slice || w.look.ByUUID(uuid) == nil {
			continue
		}
		if err := a.TimeSlicer.SetTimeSlice(ctx, uuid, slice); err != nil {
			a.memory.timeSlices[uuid] = timeSliceUnknown
			p.remark(uuid, err.Error())
			failed = append(failed, err)
			continue
		}
		a.Log.Info("The time slice of a GPU is set", "gpu", uuid, "timeSlice", slice)
		a.memory.timeSlices[uuid] = slice
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("setting time slices: %w", err)
	}
	return nil
}

// remark adds to what is said of a GPU where nothing else is.
func (p plan) remark(uuid, message string) {
	for i := range p.outcomes {
		if p.outcomes[i].Facts.UUID == uuid && p.outcomes[i].Message == "" {
			p.outcomes[i].Message = message
		}
	}
}
