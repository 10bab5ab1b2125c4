// SPDX-License-Identifier: Apache-2.0

// Package mps is the door to NVIDIA's Multi-Process Service: one control daemon for each device that claims share by MPS,
// started with the device's first tenant and stopped after its last.
//
// A daemon must outlive the agent: without it, CUDA in a container that starts finds no daemon, says nothing and runs
// without any limit. So it is started outside of the agent's container (its cgroup, its mount namespace), and the next
// agent finds it again by the directory of its device: what the daemon was started as is in a record there, beside the pipe
// directory through which its clients reach it.
package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// MaxClients is how many processes one server takes; the next one's CUDA fails with error 808. On a MIG instance it is
// fewer, by the size of the instance.
const MaxClients = 48

// Intervals of the door.
const (
	readyTime   = 10 * time.Second
	commandTime = 5 * time.Second
	quitTime    = 5 * time.Second
	pollTime    = 20 * time.Millisecond
)

var (
	// ErrNoProgram says that the driver has no nvidia-cuda-mps-control.
	ErrNoProgram = errors.New("the driver has no nvidia-cuda-mps-control: install it on the node, it comes with the tools of the driver, or choose another sharing.mode")
	// ErrNoDaemon says that a device has no daemon that answers.
	ErrNoDaemon = errors.New("the MPS daemon does not run")
	// ErrBadDir says that the directory of the daemons is where they cannot see it.
	ErrBadDir = errors.New("the directory of the MPS daemons must not be below /dev/shm, which each has for itself")
	// ErrBadClient says that a client cannot be served as it is.
	ErrBadClient = errors.New("MPS client is not valid")
)

// Options say where things are.
type Options struct {
	// Dir has a directory for each device with a daemon. It is a tmpfs, with the same path on the node.
	Dir string
	// DriverRoot is where NVIDIA's driver is installed, on the node.
	DriverRoot string
	// Cgroup is the directory of the node's cgroup v2 file system below which each daemon gets a cgroup; "" leaves daemons
	// in the agent's, which is right only where nothing ends what is in it with the agent.
	Cgroup string
	// Namespace is a file of the mount namespace in which daemons are started; "" is the agent's.
	Namespace string
	// Proc is the node's procfs.
	Proc string
}

// Client is an allocation result that is held by MPS.
type Client struct {
	ClaimUID string
	Index    int
	// Device is the UUID of the GPU or the MIG device.
	Device string
	// Driver is the driver's version.
	Driver string
	// MemoryMiB is its limit, and Percent the part of the device's threads that it may use; 0 is what is idle.
	MemoryMiB int64
	Percent   int64
}

// Door starts, finds and stops daemons. Serve and Keep are called by one caller of the node at a time.
type Door struct {
	options Options
	clock   clock.PassiveClock
	log     logr.Logger
}

// New makes a door. Nothing is made until the first client is served.
func New(options Options, c clock.PassiveClock, log logr.Logger) *Door {
	if options.DriverRoot == "" {
		options.DriverRoot = "/"
	}
	return &Door{options: options, clock: c, log: log}
}

// Running is true where the device has a living daemon.
func (d *Door) Running(device string) bool {
	r, err := d.read(device)
	return err == nil && d.alive(r)
}

// Serve makes sure that the client's device has a daemon, and that the daemon knows the client.
func (d *Door) Serve(ctx context.Context, c Client) error {
	if err := c.validate(); err != nil {
		return err
	}
	if inside, err := filepath.Rel("/dev/shm", d.options.Dir); err == nil && filepath.IsLocal(inside) {
		return fmt.Errorf("%s: %w", d.options.Dir, ErrBadDir)
	}
	r, err := d.read(c.Device)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !d.alive(r) {
		if r, err = d.start(ctx, c, r); err != nil {
			return fmt.Errorf("starting the MPS daemon of %s: %w", c.Device, err)
		}
	}
	if err := d.introduce(ctx, r, c); err != nil {
		return fmt.Errorf("telling the MPS daemon of %s about its client: %w", c.Device, err)
	}
	return nil
}

// Keep brings the daemons in line with the clients that there are: it stops those that nobody needs any more and starts
// those that have ended by themselves, whose clients are marked until they are gone. It does all it can.
func (d *Door) Keep(ctx context.Context, clients []Client) error {
	devices, err := d.devices()
	failed := []error{err}
	for _, device := range devices {
		theirs := of(device, clients)
		if len(theirs) == 0 {
			if err := d.stop(ctx, device); err != nil {
				failed = append(failed, fmt.Errorf("stopping the MPS daemon of %s: %w", device, err))
			}
			continue
		}
		failed = append(failed, d.keepMarks(device, theirs), d.forget(ctx, device, theirs))
	}
	var seen []string
	for _, c := range clients {
		if slices.Contains(seen, c.Device) || d.Running(c.Device) {
			continue
		}
		seen = append(seen, c.Device)
		failed = append(failed, d.revive(ctx, c.Device, of(c.Device, clients)))
	}
	return errors.Join(failed...)
}

// revive starts the daemon of a device that has clients, and marks them where there had been one.
func (d *Door) revive(ctx context.Context, device string, all []Client) error {
	if r, err := d.read(device); err == nil {
		d.log.Info("An MPS daemon has ended by itself; it is started again", "device", device, "pid", r.PID)
		r.mark(all, d.clock.Now())
		if err := d.write(r); err != nil {
			return err
		}
	}
	for _, client := range all {
		if err := d.Serve(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

// keepMarks forgets the marks of claims that are gone.
func (d *Door) keepMarks(device string, clients []Client) error {
	r, err := d.read(device)
	if err != nil || len(r.Marked) == 0 {
		return nil //nolint:nilerr // without a record there are no marks
	}
	kept := slices.DeleteFunc(slices.Clone(r.Marked), func(uid string) bool {
		return !slices.ContainsFunc(clients, func(c Client) bool { return c.ClaimUID == uid })
	})
	if len(kept) == len(r.Marked) {
		return nil
	}
	r.Marked = kept
	return d.write(r)
}

// devices are those that have a directory.
func (d *Door) devices() ([]string, error) {
	entries, err := os.ReadDir(d.options.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the MPS daemons: %w", err)
	}
	var devices []string
	for _, entry := range entries {
		if entry.IsDir() && validDevice(entry.Name()) {
			devices = append(devices, entry.Name())
		}
	}
	return devices, nil
}

// of are the clients of one device.
func of(device string, clients []Client) []Client {
	var own []Client
	for _, c := range clients {
		if c.Device == device {
			own = append(own, c)
		}
	}
	return own
}

func (c Client) validate() error {
	switch {
	case !validDevice(c.Device):
		return fmt.Errorf("device %q: %w", c.Device, ErrBadClient)
	case c.MemoryMiB < 1:
		return fmt.Errorf("%d MiB of memory: %w", c.MemoryMiB, ErrBadClient)
	case c.Percent < 0 || c.Percent > 100:
		return fmt.Errorf("%d %% of the threads: %w", c.Percent, ErrBadClient)
	}
	return nil
}

// validDevice is true for what may name a directory.
func validDevice(uuid string) bool {
	return (strings.HasPrefix(uuid, "GPU-") || strings.HasPrefix(uuid, "MIG-")) && filepath.IsLocal(uuid) &&
		!strings.ContainsRune(uuid, filepath.Separator)
}

func (d *Door) dir(device string) string  { return filepath.Join(d.options.Dir, device) }
func (d *Door) pipe(device string) string { return filepath.Join(d.dir(device), "pipe") }
func (d *Door) logs(device string) string { return filepath.Join(d.dir(device), "log") }
func (d *Door) shm(device string) string  { return filepath.Join(d.dir(device), "shm") }
