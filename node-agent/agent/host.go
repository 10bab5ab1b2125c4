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

// hookPath is where the container runtime finds a hook: where the configuration says, else at a copy that is placed now.
func (c *Config) hookPath(given, installed string) (string, error) {
	if given != "" {
		return given, nil
	}
	return hostbin.Door{Dir: c.HostBinDir}.Place(installed)
}

// placedHooks are the programs of which the agent keeps copies on the node.
func (c *Config) placedHooks() []string {
	var installed []string
	if c.CDIHookPath == "" {
		installed = append(installed, c.CDIHook)
	}
	if c.StartHookPath == "" {
		installed = append(installed, c.StartHook)
	}
	return installed
}

// openSpecs makes the door to CDI specs, after it has placed the hooks that they name.
func openSpecs(c Config, driver *Driver) (*cdi.Door, error) {
	hook, err := c.hookPath(c.CDIHookPath, c.CDIHook)
	if err != nil {
		return nil, err
	}
	start, err := c.hookPath(c.StartHookPath, c.StartHook)
	if err != nil {
		return nil, err
	}
	door, err := cdi.New(cdi.Options{
		HostRoot: c.HostRoot, DriverRoot: c.seen(c.DriverRoot), DevRoot: c.seen(c.DevRoot), SpecDir: c.CDIDir, HookPath: hook,
		NVML: driver.Library, StartHook: start, AskSocket: askSocket(c),
	}, c.Log.WithName("cdi"))
	if err != nil {
		return nil, fmt.Errorf("opening the CDI specs: %w", err)
	}
	return door, nil
}

// sweepPrograms removes the programs that earlier agents placed on the node, once no spec names them any more. It is tried
// again by the next agent.
func sweepPrograms(c Config, doors doors) {
	hooks := c.placedHooks()
	if len(hooks) == 0 {
		return
	}
	if err := sweepBut(hostbin.Door{Dir: c.HostBinDir}, hooks, doors.specs); err != nil {
		c.Log.Error(err, "Programs of earlier agents stay on the node")
	}
}

// sweepBut removes the programs that are neither among those of this agent nor named by a spec.
func sweepBut(bin hostbin.Door, hooks []string, specs *cdi.Door) error {
	used, err := specs.Programs()
	if err != nil {
		return fmt.Errorf("finding the programs in use: %w", err)
	}
	for _, installed := range hooks {
		own, err := bin.Place(installed)
		if err != nil {
			return fmt.Errorf("finding this agent's own programs: %w", err)
		}
		used = append(used, own)
	}
	if err := bin.Sweep(used); err != nil {
		return fmt.Errorf("removing programs: %w", err)
	}
	return nil
}
