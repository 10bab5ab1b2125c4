// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
)

// Run starts a program as a further component of the lab: Stop and Start take it away and bring it back, Down ends it
// before the control plane. Its log is DIR/logs/<name>.log.
func Run(ctx context.Context, dir Dir, c Component) error {
	unlock, err := Lock(string(dir))
	if err != nil {
		return err
	}
	defer unlock()
	state, err := dir.Load()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(state.Components, func(other Component) bool { return other.Name == c.Name }) {
		return fmt.Errorf("the lab has a component %q already", c.Name)
	}
	run, err := newRun(dir, state)
	if err != nil {
		return err
	}
	c.Log = dir.path("logs", c.Name+".log")
	state.Components = append(state.Components, c)
	return run.start(ctx, &state.Components[len(state.Components)-1])
}
