// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/go-logr/logr"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// memoryLimitsHook is nvcdi's hook on whole GPUs that takes memory limits from the container's environment, which a
// tenant writes. Sluice's limits come from the claim.
const memoryLimitsHook = "apply-cuda-memory-limits"

// driver is nvcdi for one loaded library, with what it has said.
type driver struct {
	nvcdi   nvcdi.Interface
	library nvml.Library
	// common is what every device needs: control nodes, driver libraries, hooks. Finding it takes longer than all else,
	// and it is the same for all claims.
	common *specs.ContainerEdits
	// gpus are the whole GPUs that were asked for, by UUID. nvcdi reads thousands of MIG minors for each, even for those.
	gpus map[string]*specs.ContainerEdits
}

// Refresh forgets what nvcdi has said and reads anew what all devices have in common, so that what was installed or
// removed since, such as a socket of a daemon of the driver, is in the specs to come. Write does it by itself where files
// are missing or the agent has opened another library.
func (d *Door) Refresh() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.driver = nil
	_, err := d.ready()
	return err
}

// describe is what all devices have in common and what each grant's device needs.
func (d *Door) describe(grants []Grant) (common *specs.ContainerEdits, devices []*specs.ContainerEdits, err error) {
	said := bounded(&d.hangs, patience, func() description { return d.ask(grants) })
	return said.common, said.devices, said.err
}

// ask asks nvcdi.
func (d *Door) ask(grants []Grant) description {
	d.mu.Lock()
	defer d.mu.Unlock()
	driver, err := d.ready()
	if err != nil {
		return description{err: err}
	}
	said := description{common: driver.common}
	for _, grant := range grants {
		edits, err := driver.device(grant.UUID)
		if err != nil {
			return description{err: err}
		}
		said.devices = append(said.devices, edits)
	}
	return said
}

// ready is the driver as it is now. What was found before is kept while its files are there and the library is the same.
func (d *Door) ready() (*driver, error) {
	var library nvml.Library
	if d.options.NVML != nil {
		library = d.options.NVML()
	}
	if d.driver != nil && d.driver.library == library && present(d.driver.common) {
		return d.driver, nil
	}
	d.driver = nil
	driver, err := newDriver(d.options, library, d.log)
	if err != nil {
		return nil, err
	}
	d.driver = driver
	return driver, nil
}

// newDriver asks nvcdi for what all devices have in common.
func newDriver(options Options, library nvml.Library, log logr.Logger) (*driver, error) {
	asked := []nvcdi.Option{
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithLogger(logger{log}),
		nvcdi.WithDriverRoot(options.DriverRoot),
		nvcdi.WithDevRoot(options.DevRoot),
		nvcdi.WithDisabledHooks(memoryLimitsHook),
	}
	if options.HookPath != "" {
		asked = append(asked, nvcdi.WithNVIDIACDIHookPath(options.HookPath))
	}
	if library != nil {
		asked = append(asked, nvcdi.WithNvmlLib(library))
	}
	lib, err := nvcdi.New(asked...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDriver, err)
	}
	common, err := lib.GetCommonEdits()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDriver, err)
	}
	for _, node := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		if count(common.ContainerEdits, func(path string) bool { return path == node }) != 1 {
			return nil, fmt.Errorf("%s below %s: %w", node, options.DevRoot, ErrMissingNode)
		}
	}
	return &driver{nvcdi: lib, library: library, common: common.ContainerEdits, gpus: map[string]*specs.ContainerEdits{}}, nil
}

// device is what one device needs. That of a whole GPU is kept, since its minor is the same until the driver is loaded
// again; MIG instances come and go, and one that comes back may have another capability.
func (d *driver) device(uuid string) (*specs.ContainerEdits, error) {
	if kept, ok := d.gpus[uuid]; ok && present(kept) {
		return kept, nil
	}
	edits, err := d.ask(uuid)
	if err == nil && strings.HasPrefix(uuid, "GPU-") {
		d.gpus[uuid] = edits
	}
	return edits, err
}

// ask asks nvcdi what one device needs and checks that it is all there.
func (d *driver) ask(uuid string) (*specs.ContainerEdits, error) {
	isMIG := strings.HasPrefix(uuid, "MIG-")
	if !isMIG && !strings.HasPrefix(uuid, "GPU-") {
		return nil, fmt.Errorf("%q is no UUID: %w", uuid, ErrBadGrant)
	}
	devices, err := d.nvcdi.GetDeviceSpecsByID(uuid)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w: %w", uuid, ErrDriver, err)
	}
	if len(devices) != 1 {
		return nil, fmt.Errorf("device %s: %w: nvcdi knows %d of it", uuid, ErrDriver, len(devices))
	}
	edits := &devices[0].ContainerEdits
	if got := count(edits, isGPUNode); got != 1 {
		return nil, fmt.Errorf("device %s: found %d of 1 /dev/nvidia<minor>: %w", uuid, got, ErrMissingNode)
	}
	if got := count(edits, isCapNode); isMIG && got != 2 {
		return nil, fmt.Errorf("device %s: found %d of 2 /dev/nvidia-caps/nvidia-cap<minor>: %w", uuid, got, ErrMissingNode)
	}
	return edits, nil
}

// isGPUNode says whether a path is that of a GPU.
func isGPUNode(path string) bool {
	minor, ok := strings.CutPrefix(path, "/dev/nvidia")
	return ok && isNumber(minor)
}

// isCapNode says whether a path is that of a MIG capability: one opens the GPU instance, one the compute instance.
func isCapNode(path string) bool {
	minor, ok := strings.CutPrefix(path, "/dev/nvidia-caps/nvidia-cap")
	return ok && isNumber(minor)
}

// isNumber says whether a text is a decimal number without sign.
func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 32)
	return err == nil
}

// count is how many device nodes have such a path in the container.
func count(edits *specs.ContainerEdits, is func(path string) bool) int {
	found := 0
	for _, node := range edits.DeviceNodes {
		if is(node.Path) {
			found++
		}
	}
	return found
}

// present says whether every device node and file that the edits name is there.
func present(edits *specs.ContainerEdits) bool {
	for _, node := range edits.DeviceNodes {
		path := node.HostPath
		if path == "" {
			path = node.Path
		}
		if _, err := os.Lstat(path); err != nil {
			return false
		}
	}
	for _, mount := range edits.Mounts {
		if _, err := os.Lstat(mount.HostPath); err != nil {
			return false
		}
	}
	return true
}

// logger is where nvcdi logs. It reports each optional file that it does not find; what is really missing, the door says.
type logger struct{ log logr.Logger }

// Debugf logs what only helps when nvcdi itself is looked into.
func (l logger) Debugf(format string, args ...any) { l.log.V(6).Info(fmt.Sprintf(format, args...)) }

// Tracef logs what only helps when nvcdi itself is looked into.
func (l logger) Tracef(format string, args ...any) { l.log.V(6).Info(fmt.Sprintf(format, args...)) }

// Infof logs what was found.
func (l logger) Infof(format string, args ...any) { l.log.V(4).Info(fmt.Sprintf(format, args...)) }

// Warningf logs what was not found.
func (l logger) Warningf(format string, args ...any) { l.log.V(2).Info(fmt.Sprintf(format, args...)) }

// Errorf logs what failed.
func (l logger) Errorf(format string, args ...any) {
	l.log.Error(nil, fmt.Sprintf(format, args...))
}
