// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/cgroups"
	"github.com/sluice-gpu/sluice/node-agent/claims"
	"github.com/sluice-gpu/sluice/node-agent/divide"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/measure"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// Driver is the NVML door of a node on which the driver may be missing now and there later. It opens the door when it is
// needed and opens it anew after it has failed.
type Driver struct {
	// Root is where the driver is installed.
	Root string

	mu   sync.Mutex
	door *nvml.Door
	// opening is there while the door is being opened.
	opening *opening
}

// opening is the opening of the door, which can hang.
type opening struct {
	done chan struct{}   // closed with the result
	late <-chan struct{} // closed when nobody is to wait any longer
	door *nvml.Door
	err  error
}

var (
	_ claims.Hardware  = &Driver{}
	_ measure.Hardware = &Driver{}
	_ divide.Hardware  = &Driver{}
	_ holders.Hardware = &Driver{}
	_ cgroups.Hardware = &Driver{}
)

// open is the open door. Opening one can hang like any call of NVML: all wait for the same one, and no longer than for
// other calls.
func (d *Driver) open() (*nvml.Door, error) {
	d.mu.Lock()
	if d.door != nil {
		defer d.mu.Unlock()
		return d.door, nil
	}
	if d.opening == nil {
		bound, cancel := context.WithTimeout(context.Background(), nvml.DefaultDeadline)
		d.opening = &opening{done: make(chan struct{}), late: bound.Done()}
		go d.openDoor(d.opening, cancel)
	}
	o := d.opening
	d.mu.Unlock()
	select {
	case <-o.done:
		return o.door, o.err
	case <-o.late:
	}
	select {
	case <-o.done: // which ends the time, too
		return o.door, o.err
	default:
		return nil, fmt.Errorf("opening NVML: %w", nvml.ErrHangs)
	}
}

// openDoor opens the door for all who wait for it.
func (d *Driver) openDoor(o *opening, cancel context.CancelFunc) {
	path, err := nvml.FindLibrary(d.Root)
	if err != nil {
		err = fmt.Errorf("finding NVML: %w", err)
	} else if o.door, err = nvml.Open(path); err != nil {
		err = fmt.Errorf("opening NVML: %w", err)
	}
	o.err = err
	d.mu.Lock()
	d.door, d.opening = o.door, nil
	d.mu.Unlock()
	close(o.done)
	cancel()
}

// Library is what the open door has loaded; nil where it cannot be opened.
func (d *Driver) Library() nvml.Library {
	door, err := d.open()
	if err != nil {
		return nil
	}
	return door.Library()
}

// Close ends the use of NVML.
func (d *Driver) Close() { d.drop(nil) }

// drop closes the door that failed, unless somebody has opened another one since; nil means whichever is open.
func (d *Driver) drop(failed *nvml.Door) {
	d.mu.Lock()
	door := d.door
	if failed != nil && door != failed {
		d.mu.Unlock()
		return
	}
	d.door = nil
	d.mu.Unlock()
	if door != nil {
		door.Close()
	}
}

// Look looks at all GPUs. A door through which nothing is to be seen is opened anew next time; not where a call hangs, which
// would hang there too.
func (d *Driver) Look(ctx context.Context) (gpu.Node, error) {
	door, err := d.open()
	if err != nil {
		return gpu.Node{}, err
	}
	look, err := door.Look(ctx)
	if err != nil && !errors.Is(err, nvml.ErrSick) && !errors.Is(err, nvml.ErrHangs) && ctx.Err() == nil {
		d.drop(door)
	}
	if err != nil {
		return look, fmt.Errorf("looking at the GPUs: %w", err)
	}
	return look, nil
}

// CreateGPUInstance creates a GPU instance at an explicit placement.
func (d *Driver) CreateGPUInstance(ctx context.Context, gpuUUID string, p gpu.Placement) (int, error) {
	door, err := d.open()
	if err != nil {
		return 0, err
	}
	return door.CreateGPUInstance(ctx, gpuUUID, p) //nolint:wrapcheck // the door's errors say what was being done
}

// CreateComputeInstance creates the compute instance that fills a GPU instance.
func (d *Driver) CreateComputeInstance(ctx context.Context, gpuUUID string, giID int) (int, string, error) {
	door, err := d.open()
	if err != nil {
		return 0, "", err
	}
	return door.CreateComputeInstance(ctx, gpuUUID, giID) //nolint:wrapcheck // the door's errors say what was being done
}

// DestroyInstance destroys a GPU instance and what is in it.
func (d *Driver) DestroyInstance(ctx context.Context, gpuUUID string, giID int) error {
	door, err := d.open()
	if err != nil {
		return err
	}
	return door.DestroyInstance(ctx, gpuUUID, giID) //nolint:wrapcheck // the door's errors say what was being done
}

// SetMIGMode turns MIG mode on or off.
func (d *Driver) SetMIGMode(ctx context.Context, gpuUUID string, on bool) error {
	door, err := d.open()
	if err != nil {
		return err
	}
	return door.SetMIGMode(ctx, gpuUUID, on) //nolint:wrapcheck // the door's errors say what was being done
}

// Processes are those with contexts on a device of a GPU.
func (d *Driver) Processes(ctx context.Context, gpuUUID, deviceUUID string) ([]nvml.Process, error) {
	door, err := d.open()
	if err != nil {
		return nil, err
	}
	return door.Processes(ctx, gpuUUID, deviceUUID) //nolint:wrapcheck // the door's errors say what was being done
}

// Figures are all processes on a device of a GPU, with what NVML says of their memory.
func (d *Driver) Figures(ctx context.Context, gpuUUID, deviceUUID string) ([]nvml.Figure, error) {
	door, err := d.open()
	if err != nil {
		return nil, err
	}
	return door.Figures(ctx, gpuUUID, deviceUUID) //nolint:wrapcheck // the door's errors say what was being done
}

// MemoryUsed is how much of a GPU's memory is taken.
func (d *Driver) MemoryUsed(ctx context.Context, gpuUUID string) (uint64, error) {
	door, err := d.open()
	if err != nil {
		return 0, err
	}
	return door.MemoryUsed(ctx, gpuUUID) //nolint:wrapcheck // the door's errors say what was being done
}

// Holders are the processes on a GPU and its MIG instances.
func (d *Driver) Holders(ctx context.Context, gpuUUID string) ([]nvml.Holder, error) {
	door, err := d.open()
	if err != nil {
		return nil, err
	}
	return door.Holders(ctx, gpuUUID) //nolint:wrapcheck // the door's errors say what was being done
}

// judgeLook is the reason and the message of a look that failed. Single sick GPUs are a message without a reason: the
// look is good for the others.
func judgeLook(err error) (reason, message string) {
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, nvml.ErrSick):
		return "", err.Error()
	case errors.Is(err, nvml.ErrNotFound):
		return v1alpha1.ReasonNVMLNotFound, err.Error()
	default:
		return v1alpha1.ReasonNVMLFailed, err.Error()
	}
}
