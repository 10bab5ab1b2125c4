// SPDX-License-Identifier: Apache-2.0

// Package cdi is the door to the container runtime: it writes one CDI spec file per prepared claim. Device nodes and driver
// libraries are found by NVIDIA's nvcdi package; this package, its only importer, adds the claim's own mounts and
// environment and checks what nvcdi only warns about.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/sluice-gpu/sluice/internal/claimuid"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// vendor and class are the kind of this agent's CDI devices. They are not NVIDIA's, whose names the node's own
// specs use.
const (
	vendor = "k8s.gpu.sluice.dev"
	class  = "claim"
)

// temporarySuffix is that of a spec file that is being written.
const temporarySuffix = ".tmp"

var (
	// ErrMissingNode says that a device node that a container needs does not exist on the node. nvcdi leaves such nodes
	// out and only warns, so the container would start without a GPU.
	ErrMissingNode = errors.New("device node is missing")
	// ErrBadGrant says that a grant cannot be written as it is.
	ErrBadGrant = errors.New("grant is not valid")
	// ErrDriver says that nvcdi could not describe the driver or a device.
	ErrDriver = errors.New("describing the driver's devices and files failed")
)

// Options say where things are. Directories have the same path on the node and for the agent, but for what is below HostRoot.
type Options struct {
	// HostRoot is where the agent sees the node's root directory; empty means /. Specs name paths without it.
	HostRoot string
	// DriverRoot is where NVIDIA's driver is installed; empty means /.
	DriverRoot string
	// DevRoot is the directory that holds dev; empty means DriverRoot.
	DevRoot string
	// SpecDir is the directory that the container runtime reads; it is made where it is missing.
	SpecDir string
	// HookPath is NVIDIA's CDI hook on the host; empty means nvcdi's default.
	HookPath string
	// StartHook is the program that the container runtime runs before a container starts, on the host, and AskSocket where it
	// reaches the agent.
	StartHook, AskSocket string
	// NVML gives the library that the agent has open, nil while it has none. Without it nvcdi loads its own from
	// DriverRoot.
	NVML func() nvml.Library
}

// Grant is what one allocation result of a claim gives to containers.
type Grant struct {
	// Name tells the claim's results apart; the result's index.
	Name string
	// UUID is the GPU's or the MIG device's.
	UUID string
	// Mounts and Env are added to what the device itself needs.
	Mounts []Mount
	Env    []string
	// Ask is true where no container with the device may start before the agent was asked.
	Ask bool
}

// Mount is a bind mount of a file or directory of the host.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
	// Executable mounts of a host's file system that runs no programs run them all the same, as a library must.
	Executable bool
}

// Door writes spec files. It is safe for concurrent use.
type Door struct {
	options Options
	log     logr.Logger

	// mu guards what nvcdi has said.
	mu sync.Mutex
	// hangs is true while nvcdi does not answer.
	hangs  atomic.Bool
	driver *driver
}

// New makes a door. The driver need not be there yet.
func New(options Options, log logr.Logger) (*Door, error) {
	if options.SpecDir == "" {
		return nil, fmt.Errorf("no directory for CDI specs: %w", ErrBadGrant)
	}
	if err := os.MkdirAll(options.SpecDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory for CDI specs: %w", err)
	}
	if options.DriverRoot == "" {
		options.DriverRoot = "/"
	}
	if options.DevRoot == "" {
		options.DevRoot = options.DriverRoot
	}
	return &Door{options: options, log: log}, nil
}

// Write replaces the claim's spec file by one with the given grants and returns their CDI device names in the same order.
// It fails, and leaves an older file as it was, where a device node that a container needs is missing.
func (d *Door) Write(claimUID string, grants []Grant) ([]string, error) {
	if err := claimuid.Validate(claimUID); err != nil {
		return nil, err
	}
	spec, err := d.specFor(claimUID, grants)
	if err != nil {
		return nil, fmt.Errorf("making the CDI spec of claim %s: %w", claimUID, err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encoding the CDI spec of claim %s: %w", claimUID, err)
	}
	if err := d.replace(claimUID, data); err != nil {
		return nil, fmt.Errorf("writing the CDI spec of claim %s: %w", claimUID, err)
	}
	ids := make([]string, 0, len(spec.Devices))
	for _, device := range spec.Devices {
		ids = append(ids, parser.QualifiedName(vendor, class, device.Name))
	}
	return ids, nil
}

// Remove deletes the claim's spec file. A claim without one is no error.
func (d *Door) Remove(claimUID string) error {
	if err := claimuid.Validate(claimUID); err != nil {
		return err
	}
	for _, path := range []string{d.temporary(claimUID), d.path(claimUID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the CDI spec of claim %s: %w", claimUID, err)
		}
	}
	return nil
}

// List returns the UIDs of the claims that have a spec file, or one whose writing was cut short, in order.
func (d *Door) List() ([]string, error) {
	entries, err := os.ReadDir(d.options.SpecDir)
	if err != nil {
		return nil, fmt.Errorf("listing CDI specs: %w", err)
	}
	prefix := cdi.GenerateTransientSpecName(vendor, class, "")
	uids := []string{}
	for _, entry := range entries {
		uid, ours := strings.CutPrefix(strings.TrimSuffix(entry.Name(), temporarySuffix), prefix)
		uid, spec := strings.CutSuffix(uid, ".json")
		if ours && spec && claimuid.Validate(uid) == nil {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// specFor is the claim's spec, validated.
func (d *Door) specFor(claimUID string, grants []Grant) (*specs.Spec, error) {
	if len(grants) == 0 {
		return nil, fmt.Errorf("no devices: %w", ErrBadGrant)
	}
	common, devices, err := d.describe(grants)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{Kind: vendor + "/" + class, ContainerEdits: onNode(*common, d.options.HostRoot)}
	for i, grant := range grants {
		device, err := d.deviceOf(claimUID, grant, onNode(*devices[i], d.options.HostRoot))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(spec.Devices, func(other specs.Device) bool { return other.Name == device.Name }) {
			return nil, fmt.Errorf("two devices named %s: %w", device.Name, ErrBadGrant)
		}
		spec.Devices = append(spec.Devices, device)
	}
	// The oldest version that can say this: runtimes refuse what is newer than they are.
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return nil, fmt.Errorf("finding the spec's version: %w", err)
	}
	return spec, nil
}

// deviceOf is a grant as a CDI device: what the hardware needs and what the grant adds.
func (d *Door) deviceOf(claimUID string, grant Grant, edits specs.ContainerEdits) (specs.Device, error) {
	name := claimUID + "-" + grant.Name
	if err := parser.ValidateDeviceName(name); err != nil {
		return specs.Device{}, fmt.Errorf("device name: %w: %w", ErrBadGrant, err)
	}
	edits.Env = append(slices.Clone(edits.Env), grant.Env...)
	edits.Mounts = slices.Clone(edits.Mounts)
	for _, m := range grant.Mounts {
		if !filepath.IsAbs(m.HostPath) || !filepath.IsAbs(m.ContainerPath) {
			return specs.Device{}, fmt.Errorf("mount of %q at %q: want absolute paths: %w", m.HostPath, m.ContainerPath, ErrBadGrant)
		}
		edits.Mounts = append(edits.Mounts, &specs.Mount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath, Options: mountOptions(m),
		})
	}
	if grant.Ask {
		if !filepath.IsAbs(d.options.StartHook) || !filepath.IsAbs(d.options.AskSocket) {
			return specs.Device{}, fmt.Errorf("hook %q with socket %q: want absolute paths: %w", d.options.StartHook, d.options.AskSocket, ErrBadGrant)
		}
		edits.Hooks = append(slices.Clone(edits.Hooks), d.startHook(claimUID, grant.Name))
	}
	if err := (&cdi.ContainerEdits{ContainerEdits: &edits}).Validate(); err != nil {
		return specs.Device{}, fmt.Errorf("device %s: %w: %w", name, ErrBadGrant, err)
	}
	return specs.Device{Name: name, ContainerEdits: edits}, nil
}

// startHook is the hook that asks the agent. It runs when the container has its cgroup and no process of its own yet.
func (d *Door) startHook(claimUID, result string) *specs.Hook {
	return &specs.Hook{
		HookName: cdi.CreateRuntimeHook, Path: d.options.StartHook,
		Args: []string{filepath.Base(d.options.StartHook), "--socket", d.options.AskSocket, "--claim", claimUID, "--result", result},
	}
}

// mountOptions are those of a bind mount.
func mountOptions(m Mount) []string {
	options := []string{"rw", "nosuid", "nodev", "bind"}
	if m.ReadOnly {
		options[0] = "ro"
	}
	if m.Executable {
		options = append(options, "exec")
	}
	return options
}

// path is the claim's spec file.
func (d *Door) path(claimUID string) string {
	return filepath.Join(d.options.SpecDir, cdi.GenerateTransientSpecName(vendor, class, claimUID)+".json")
}

// temporary is the file that becomes the claim's spec file. Runtimes do not read it, for its name.
func (d *Door) temporary(claimUID string) string {
	return d.path(claimUID) + temporarySuffix
}

// replace puts the data in place of the claim's spec file at once. It does not sync: the directory is on tmpfs, and after
// a crash of the node the claim is prepared again.
func (d *Door) replace(claimUID string, data []byte) error {
	path, temporary := d.path(claimUID), d.temporary(claimUID)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return fmt.Errorf("writing beside the spec: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("replacing the spec: %w", err)
	}
	return nil
}
