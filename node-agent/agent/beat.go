// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// beat keeps the node's heartbeat going until the context ends. Trouble is logged once, and once more when it is over.
func beat(ctx context.Context, heartbeat *limits.Heartbeat, c clock.WithTicker, log logr.Logger) {
	ticker := c.NewTicker(limits.HeartbeatPeriod)
	defer ticker.Stop()
	troubled := false
	for {
		now, err := limits.Monotonic()
		if err == nil {
			err = heartbeat.Beat(now)
		}
		switch {
		case err != nil && !troubled:
			log.Error(err, "The node's heartbeat stands still")
		case err == nil && troubled:
			log.Info("The node's heartbeat goes on")
		}
		troubled = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}
