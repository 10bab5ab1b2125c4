// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"path/filepath"

	"github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/node-agent/hostbin"
	"github.com/sluice-gpu/sluice/node-agent/mps"
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

// daemons is the door to MPS.
func daemons(c Config) *mps.Door {
	return mps.New(mps.Options{
		Dir: c.MPSDir, DriverRoot: c.mpsDriverRoot(), Cgroup: c.MPSCgroup, Namespace: c.MPSNamespace, Proc: c.ProcDir,
	}, c.Clock, c.Log.WithName("mps"))
}

// openSpecs makes the door to CDI specs, after it has placed the hook that they name.
func openSpecs(c Config, driver *Driver) (*cdi.Door, error) {
	hook := c.CDIHookPath
	if hook == "" {
		var err error
		if hook, err = (hostbin.Door{Dir: c.HostBinDir}).Place(c.CDIHook); err != nil {
			return nil, err
		}
	}
	door, err := cdi.New(cdi.Options{
		HostRoot: c.HostRoot, DriverRoot: c.seen(c.DriverRoot), DevRoot: c.seen(c.DevRoot), SpecDir: c.CDIDir, HookPath: hook,
		NVML: driver.Library,
	}, c.Log.WithName("cdi"))
	if err != nil {
		return nil, fmt.Errorf("opening the CDI specs: %w", err)
	}
	return door, nil
}

// sweepPrograms removes the programs that earlier agents placed on the node, once no spec names them any more. It is tried
// again by the next agent.
func sweepPrograms(c Config, doors doors) {
	if c.CDIHookPath != "" {
		return
	}
	bin := hostbin.Door{Dir: c.HostBinDir}
	own, err := bin.Place(c.CDIHook)
	if err == nil {
		var used []string
		if used, err = doors.specs.Programs(); err == nil {
			err = bin.Sweep(append(used, own))
		}
	}
	if err != nil {
		c.Log.Error(err, "Programs of earlier agents stay on the node")
	}
}
