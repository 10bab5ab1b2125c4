// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrNoEvents says that the driver reports no errors of GPUs; their vitals still tell of most.
var ErrNoEvents = errors.New("NVML reports no events")

// Event is an error report of the driver.
type Event struct {
	// UUID is the GPU's. Reports about a MIG instance come from its GPU.
	UUID string
	XID  uint64
	// GIID and CIID are the MIG instance's; -1 where the report is about the whole GPU.
	GIID, CIID int
}

// Events are the error reports of some GPUs from now on. They are for one goroutine.
type Events struct {
	door  *Door
	set   nvml.EventSet
	uuids map[nvml.Device]string
}

// Events starts to listen to GPUs. One that cannot report is left out.
func (d *Door) Events(ctx context.Context, uuids []string) (*Events, error) {
	for _, symbol := range []string{
		"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes",
	} {
		if !d.has(symbol) {
			return nil, fmt.Errorf("the library has no %s: %w", symbol, ErrNoEvents)
		}
	}
	set, err := d.eventSet()
	if err != nil {
		return nil, fmt.Errorf("listening to GPUs: %w", err)
	}
	e := &Events{door: d, set: set, uuids: map[nvml.Device]string{}}
	for _, uuid := range uuids {
		if err := e.register(ctx, uuid); err != nil {
			e.Close()
			return nil, fmt.Errorf("listening to GPU %s: %w", uuid, err)
		}
	}
	if len(e.uuids) == 0 {
		e.Close()
		return nil, fmt.Errorf("none of %d GPUs reports errors: %w", len(uuids), ErrNoEvents)
	}
	return e, nil
}

func (d *Door) eventSet() (nvml.EventSet, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	var set nvml.EventSet
	err = d.bounded(all, d.deadline, leave, func() error {
		made, ret := d.lib.EventSetCreate()
		set = made
		return failed("nvmlEventSetCreate", ret)
	})
	if err != nil {
		return nil, err
	}
	return set, nil
}

func (e *Events) register(ctx context.Context, uuid string) error {
	return e.door.on(ctx, uuid, func(device nvml.Device) error {
		types, ret := device.GetSupportedEventTypes()
		if unsupported(ret) || (ret == nvml.SUCCESS && types&nvml.EventTypeXidCriticalError == 0) {
			return nil
		}
		if err := failed("nvmlDeviceGetSupportedEventTypes", ret); err != nil {
			return err
		}
		ret = device.RegisterEvents(nvml.EventTypeXidCriticalError, e.set)
		if unsupported(ret) {
			return nil
		}
		if err := failed("nvmlDeviceRegisterEvents", ret); err != nil {
			return err
		}
		e.uuids[device] = uuid
		return nil
	})
}

// Wait waits for the next report; there is none where it came to the end of the time.
func (e *Events) Wait(atMost time.Duration) (event Event, came bool, err error) {
	leave, err := e.door.enter()
	if err != nil {
		return Event{}, false, err
	}
	var data nvml.EventData
	err = e.door.bounded("events", atMost+e.door.deadline, leave, func() error {
		got, ret := e.set.Wait(uint32(atMost.Milliseconds()))
		data = got
		return failed("nvmlEventSetWait", ret)
	})
	var call *CallError
	if errors.As(err, &call) && nvml.Return(call.Return) == nvml.ERROR_TIMEOUT {
		return Event{}, false, nil
	}
	if err != nil {
		return Event{}, false, fmt.Errorf("waiting for error reports: %w", err)
	}
	uuid, ours := e.uuids[data.Device]
	if !ours || data.EventType != nvml.EventTypeXidCriticalError {
		return Event{}, false, nil
	}
	return Event{UUID: uuid, XID: data.EventData, GIID: idOf(data.GpuInstanceId), CIID: idOf(data.ComputeInstanceId)}, true, nil
}

// idOf is an instance's id; NVML says that there is none with all bits set.
func idOf(id uint32) int {
	if id == ^uint32(0) {
		return -1
	}
	return int(id)
}

// Close stops listening.
func (e *Events) Close() {
	leave, err := e.door.enter()
	if err != nil {
		return // ended with the door
	}
	// Nothing can be done about an error: the set is not used again.
	_ = e.door.bounded(all, e.door.deadline, leave, func() error {
		return failed("nvmlEventSetFree", e.set.Free())
	})
}
