// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sync"

	"github.com/sluice-gpu/sluice/node-agent/arbiter"
)

// arbitration is the arbiter while it runs.
type arbitration struct {
	*arbiter.Arbiter
	stop func()
}

// arbitrate begins with the arbiter. Gates that nobody opens would hold their tenants for as long as the heart beats, so the
// agent ends where the arbiter does.
func arbitrate(c Config, doors doors, cancel context.CancelCauseFunc) (*arbitration, error) {
	a, err := arbiter.Begin(arbiter.Options{Shares: doors.shares, Metrics: c.Metrics.Arbiter, Log: c.Log.WithName("arbiter")})
	if err != nil {
		return nil, fmt.Errorf("beginning to arbitrate: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			cancel(err)
		}
	})
	return &arbitration{Arbiter: a, stop: func() {
		end()
		running.Wait()
	}}, nil
}
