// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/sluice-gpu/sluice/node-agent/measure"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
	"github.com/sluice-gpu/sluice/node-agent/usage"
	"github.com/sluice-gpu/sluice/node-agent/violations"
)

// besides is something that the active agent does beside its loop until the context ends.
type besides func(ctx context.Context)

// newBeside lists what runs beside the loop, and has the agent report what is found there.
func newBeside(c Config, doors doors, cluster *APICluster, driver *Driver, agent *Agent, mps *watch.Watcher) []besides {
	meter := &measure.Meter{Records: doors.records, Hardware: driver, Shares: doors.shares, Log: c.Log.WithName("contexts")}
	log := c.Log.WithName("violations")
	outbox := violations.NewOutbox(agent.Teller, log)
	watcher := &violations.Watcher{
		Records: doors.records, Hardware: driver, Shares: doors.shares, Claims: cluster, Teller: outbox,
		Killer: violations.Signals{Proc: c.ProcDir}, Metrics: c.Metrics.Violations, Usage: c.Metrics.Shares, Proc: c.ProcDir,
		Changed: agent.Trigger, Clock: c.Clock, Log: log,
	}
	agent.Violations = watcher
	memory := &usage.Meter{Hardware: driver, Records: doors.records, Metrics: c.Metrics.GPUs, Log: c.Log.WithName("usage")}
	return []besides{
		func(ctx context.Context) { meter.Run(ctx, c.Clock) },
		func(ctx context.Context) { mps.Run(ctx, c.Clock) },
		func(ctx context.Context) { doors.cgroups.Run(ctx, c.Clock) },
		watcher.Run,
		outbox.Run,
		func(ctx context.Context) { memory.Run(ctx, c.Clock) },
	}
}
