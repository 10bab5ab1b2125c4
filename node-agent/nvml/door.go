// SPDX-License-Identifier: Apache-2.0

// Package nvml is the door to NVIDIA's management library, and the only importer of its bindings. It answers in the plain
// values of internal/gpu and in errors; it never ends the process.
//
// NVML stays open: opening it takes long, and a handle is looked up once. Calls that concern one GPU wait for each other,
// those for different GPUs do not; there is no lock across GPUs, since creating an instance takes about a second. NVML
// cannot be interrupted, so a context bounds the wait for a GPU, not a call. A call has a deadline, after which nobody waits
// for it any more: see ErrHangs.
//
// The bindings resolve each symbol once for the life of the process. A library of another version, after a driver upgrade,
// is therefore only used by a new process.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// libraryName is what the driver installs.
const libraryName = "libnvidia-ml.so.1"

// libraryDirs are the directories below a driver root in which distributions and driver containers put the library.
func libraryDirs() []string {
	return []string{
		"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
		"lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu",
		"usr/lib", "lib", "usr/local/nvidia/lib64",
	}
}

// requiredSymbols are those of the calls that this package makes without asking first: the bindings end the process at a
// call that the library lacks.
func requiredSymbols() []string {
	return []string{
		"nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
		"nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetName",
		"nvmlDeviceGetArchitecture", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo",
		"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfo",
		"nvmlDeviceGetGpuInstancePossiblePlacements_v2", "nvmlDeviceCreateGpuInstanceWithPlacement",
		"nvmlDeviceGetGpuInstances", "nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo", "nvmlGpuInstanceDestroy",
		"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceCreateComputeInstance",
		"nvmlGpuInstanceGetComputeInstances", "nvmlComputeInstanceGetInfo_v2", "nvmlComputeInstanceDestroy",
		"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId",
		"nvmlDeviceGetComputeInstanceId",
	}
}

// optionalSymbols are those of calls that older libraries lack and this package can do without.
func optionalSymbols() []string {
	return []string{
		"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetMemoryAffinity",
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
	}
}

// Door is an open NVML. It is safe for concurrent use.
type Door struct {
	lib   nvml.Interface
	sysfs string
	proc  string
	// optional says which optional symbols the library has. It is found out once, since looking up a symbol while
	// somebody else initializes the library is a race in the bindings.
	optional map[string]bool

	// open is held for reading during calls and for writing by Close.
	open   sync.RWMutex
	closed atomic.Bool
	// deadline is how long a call may take.
	deadline time.Duration

	// mu guards the maps, which only grow; they are keyed by UUID. Of hanging they count the calls that are past their
	// deadline, by what they are about; seen are the UUIDs by NVML's index.
	mu       sync.Mutex
	hanging  map[string]int
	seen     map[int]string
	handles  map[string]nvml.Device
	locks    map[string]chan struct{}
	profiles map[string][]boardProfile
}

// Library is the loaded library for NVIDIA's own packages that ask for one. A package that loaded it a second time would,
// at its every use, overwrite the bindings' function pointers below the door's calls.
type Library = nvml.Interface

// Library is the door's. It stays usable when the door is closed, and is then loaded again.
func (d *Door) Library() Library { return d.lib }

// Option changes how a Door looks at the machine.
type Option func(*Door)

// WithSysfs reads the PCI topology from a sysfs mounted elsewhere than at /sys.
func WithSysfs(path string) Option {
	return func(d *Door) { d.sysfs = path }
}

// FindLibrary is the path of the NVML library of the driver that is installed below driverRoot; ErrNotFound, with all
// that was tried, where there is none. Below / the last resort is the dynamic loader, which knows directories that only
// this node's configuration names: then it is the library's bare name.
func FindLibrary(driverRoot string) (string, error) {
	tried := make([]string, 0, len(libraryDirs()))
	for _, dir := range libraryDirs() {
		candidate := filepath.Join(driverRoot, dir, libraryName)
		if _, err := os.Stat(candidate); err == nil {
			return candidate, nil
		}
		tried = append(tried, candidate)
	}
	if filepath.Clean(driverRoot) == "/" {
		return libraryName, nil
	}
	return "", fmt.Errorf("%w: looked for %v", ErrNotFound, tried)
}

// Open loads the library and initializes it. An empty path leaves the search to the dynamic loader.
func Open(libraryPath string, options ...Option) (*Door, error) {
	if libraryPath == "" {
		libraryPath = libraryName
	}
	d := &Door{
		lib:      nvml.New(nvml.WithLibraryPath(libraryPath)),
		sysfs:    "/sys",
		proc:     "/proc",
		deadline: DefaultDeadline,
		optional: map[string]bool{},
		hanging:  map[string]int{},
		seen:     map[int]string{},
		handles:  map[string]nvml.Device{},
		locks:    map[string]chan struct{}{},
		profiles: map[string][]boardProfile{},
	}
	for _, option := range options {
		option(d)
	}
	if err := failed("nvmlInit", d.lib.Init()); errors.Is(err, ErrNotFound) {
		if libraryPath == libraryName {
			libraryPath += fmt.Sprintf(" (by the loader, and below / in %v)", libraryDirs())
		}
		return nil, fmt.Errorf("loading %s: %w", libraryPath, err)
	} else if err != nil {
		return nil, fmt.Errorf("initializing %s: %w: %w", libraryPath, ErrFailed, err)
	}
	for _, symbol := range requiredSymbols() {
		if err := d.lib.Extensions().LookupSymbol(symbol); err != nil {
			d.Close()
			return nil, fmt.Errorf("%s is too old: %w: %w", libraryPath, ErrFailed, err)
		}
	}
	for _, symbol := range slices.Concat(optionalSymbols(), healthSymbols(), limitSymbols()) {
		d.optional[symbol] = d.lib.Extensions().LookupSymbol(symbol) == nil
	}
	return d, nil
}

// closeTime is how long Close waits for calls in progress. A process that is asked to end has not much more.
const closeTime = 5 * time.Second

// Close ends the use of NVML once no call is in progress; later calls fail. A second Close does nothing. A call that hangs
// keeps NVML open until it returns, but not the caller.
func (d *Door) Close() {
	if d.closed.Swap(true) {
		return
	}
	// Nothing can be done about an error, and nothing depends on it: handles are not used again.
	_ = d.bounded(closing, min(closeTime, d.deadline), func() {}, func() error {
		d.open.Lock()
		defer d.open.Unlock()
		return failed("nvmlShutdown", d.lib.Shutdown())
	})
}

// has says whether the library exports one of the optional symbols.
func (d *Door) has(symbol string) bool { return d.optional[symbol] }

// enter keeps the door open until the returned function is called.
func (d *Door) enter() (leave func(), err error) {
	// It only fails where the door is being closed.
	if d.closed.Load() || !d.open.TryRLock() {
		return nil, fmt.Errorf("%w: it was closed", ErrFailed)
	}
	if d.closed.Load() {
		d.open.RUnlock()
		return nil, fmt.Errorf("%w: it was closed", ErrFailed)
	}
	return d.open.RUnlock, nil
}

// hangCheck is how often who waits for a GPU looks whether that makes sense.
const hangCheck = 250 * time.Millisecond

// lock waits until nobody else works on the GPU, or until the context ends. Nobody waits for a call that hangs.
func (d *Door) lock(ctx context.Context, uuid string) (unlock func(), err error) {
	d.mu.Lock()
	held, ok := d.locks[uuid]
	if !ok {
		held = make(chan struct{}, 1)
		d.locks[uuid] = held
	}
	d.mu.Unlock()
	check := time.NewTicker(hangCheck)
	defer check.Stop()
	for !d.hangs(uuid) {
		select {
		case held <- struct{}{}:
			return func() { <-held }, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for GPU %s: %w", uuid, context.Cause(ctx))
		case <-check.C:
		}
	}
	return nil, fmt.Errorf("waiting for GPU %w", hung(uuid))
}

// on runs work with the handle of a GPU that nobody else works on meanwhile.
func (d *Door) on(ctx context.Context, uuid string, work func(nvml.Device) error) error {
	return d.onWithin(ctx, uuid, d.deadline, work)
}

// onWithin is on with a deadline of its own.
func (d *Door) onWithin(ctx context.Context, uuid string, deadline time.Duration, work func(nvml.Device) error) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	unlock, err := d.lock(ctx, uuid)
	if err != nil {
		leave()
		return err
	}
	release := func() {
		unlock()
		leave()
	}
	return d.bounded(uuid, deadline, release, func() error {
		device, err := d.handle(uuid)
		if err != nil {
			return err
		}
		return work(device)
	})
}

// handle is the GPU's handle, looked up once.
func (d *Door) handle(uuid string) (nvml.Device, error) {
	d.mu.Lock()
	device, ok := d.handles[uuid]
	d.mu.Unlock()
	if ok {
		return device, nil
	}
	device, ret := d.lib.DeviceGetHandleByUUID(uuid)
	if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
		return nil, fmt.Errorf("%s: %w", uuid, ErrGPUNotFound)
	}
	if err := failed("nvmlDeviceGetHandleByUUID", ret); err != nil {
		return nil, fmt.Errorf("looking up GPU %s: %w", uuid, err)
	}
	d.remember(uuid, device)
	return device, nil
}

// remember keeps a handle for later calls.
func (d *Door) remember(uuid string, device nvml.Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles[uuid] = device
}

// forget drops a handle that no longer answers, so that the next call looks it up again.
func (d *Door) forget(uuid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.handles, uuid)
}

// boardProfilesOf are the GPU's profiles, read once: they belong to the board and its driver.
func (d *Door) boardProfilesOf(uuid string, device nvml.Device) ([]boardProfile, error) {
	d.mu.Lock()
	profiles, ok := d.profiles[uuid]
	d.mu.Unlock()
	if ok {
		return profiles, nil
	}
	profiles, err := d.readProfiles(device)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.profiles[uuid] = profiles
	return profiles, nil
}

// profilesOf are the profiles as the rest of the agent knows them: by name, of which each is offered once.
func profilesOf(board []boardProfile) []gpu.Profile {
	out := make([]gpu.Profile, 0, len(board))
	for _, p := range board {
		if !slices.ContainsFunc(out, func(o gpu.Profile) bool { return o.Name == p.Name }) {
			out = append(out, p.Profile)
		}
	}
	return out
}
