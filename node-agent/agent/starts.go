// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/sluice-gpu/sluice/node-agent/hook"
)

// askSocket is where the hook of a container's start reaches the agent, on the node.
func askSocket(c Config) string { return filepath.Join(c.ShareDir, hook.SocketFile) }

// answerStarts answers whether containers may start, until it is stopped or the context ends. An agent that is not active
// answers too: the one that came last is asked.
func answerStarts(ctx context.Context, c Config, doors doors) (stop func(), err error) {
	server, err := hook.Listen(askSocket(c), doors.cgroups, c.Log.WithName("hook"))
	if err != nil {
		return nil, fmt.Errorf("answering the starts of containers: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { server.Run(ctx) })
	return func() {
		end()
		running.Wait()
	}, nil
}
