// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"path/filepath"

	"github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/node-agent/hostbin"
	"github.com/sluice-gpu/sluice/node-agent/mps"
	"github.com/sluice-gpu/sluice/node-agent/sharefs"
)

// seen is where the agent finds a path of the node. In a container the node's root directory is mounted somewhere else.
func (c *Config) seen(path string) string { return filepath.Join("/", c.HostRoot, path) }

// mpsDriverRoot is the driver's root as those see it who start MPS daemons: from the node, where the agent enters its mount
// namespace for that.
func (c *Config) mpsDriverRoot() string {
	if c.MPSNamespace == "" {
		return c.seen(c.DriverRoot)
	}
	return c.DriverRoot
}

// mountShares gives the shares a file system of their own, where the agent is to.
func mountShares(c Config) error {
	if c.ShareBytes == 0 {
		return nil
	}
	mounted, err := sharefs.Mount(c.ShareDir, c.ShareBytes)
	if mounted {
		c.Log.Info("Mounted a tmpfs for the shares", "directory", c.ShareDir, "bytes", c.ShareBytes)
	}
	return err
}

// daemons is the door to MPS.
func daemons(c Config) *mps.Door {
	return mps.New(mps.Options{
		Dir: c.MPSDir, DriverRoot: c.mpsDriverRoot(), Cgroup: c.MPSCgroup, Namespace: c.MPSNamespace, Proc: c.ProcDir,
	}, c.Clock, c.Log.WithName("mps"))
}

// hooks are the programs that specs name, as the container runtime finds them.
type hooks struct {
	cdi, start string
	// placed are those that the agent has placed on the node.
	placed []string
}

// programs places the hooks that specs name, where the configuration does not say where they are.
func programs(c Config) (hooks, error) {
	h := hooks{cdi: c.CDIHookPath, start: c.StartHookPath}
	bin := hostbin.Door{Dir: c.HostBinDir}
	for _, hook := range []struct {
		path      *string
		installed string
	}{{&h.cdi, c.CDIHook}, {&h.start, c.StartHook}} {
		if *hook.path != "" {
			continue
		}
		var err error
		if *hook.path, err = bin.Place(hook.installed); err != nil {
			return hooks{}, err
		}
		h.placed = append(h.placed, *hook.path)
	}
	return h, nil
}

// openSpecs makes the door to CDI specs.
func openSpecs(c Config, hooks hooks, driver *Driver) (*cdi.Door, error) {
	door, err := cdi.New(cdi.Options{
		HostRoot: c.HostRoot, DriverRoot: c.seen(c.DriverRoot), DevRoot: c.seen(c.DevRoot), SpecDir: c.CDIDir, HookPath: hooks.cdi,
		NVML: driver.Library, StartHook: hooks.start, AskSocket: askSocket(c),
	}, c.Log.WithName("cdi"))
	if err != nil {
		return nil, fmt.Errorf("opening the CDI specs: %w", err)
	}
	return door, nil
}

// sweepPrograms removes the programs that earlier agents placed on the node, where no spec names them any more. What it cannot
// remove is the next agent's to try.
func sweepPrograms(c Config, doors doors) {
	if len(doors.programs) == 0 {
		return
	}
	used, err := doors.specs.Programs()
	if err == nil {
		err = hostbin.Door{Dir: c.HostBinDir}.Sweep(append(used, doors.programs...))
	}
	if err != nil {
		c.Log.Error(err, "Programs of earlier agents stay on the node")
	}
}
