// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/children"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

// supervisorGrace covers the graces of its children.
const supervisorGrace = 15 * time.Second

// Down stops a node and removes its files; the Node object goes too unless it is to be kept, as after a crash.
func Down(ctx context.Context, lab cluster.Dir, name string, keepObject bool) error {
	if !keepObject {
		_, state, client, err := reach(lab, name)
		if err != nil {
			return err
		}
		if err := stop(state); err != nil {
			return err
		}
		if err := deleteObject(ctx, client, name); err != nil {
			return err
		}
		return state.Paths.remove()
	}
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	if err := stop(state); err != nil {
		return err
	}
	return state.Paths.remove()
}

// StopAll stops all nodes of a lab and removes their files, without a word to the API server, which may be gone.
func StopAll(ctx context.Context, lab cluster.Dir) error {
	names, err := Names(lab)
	if err != nil {
		return err
	}
	errs := make([]error, len(names))
	done := make(chan struct{})
	for i, name := range names {
		go func() {
			errs[i] = Down(ctx, lab, name, true)
			done <- struct{}{}
		}()
	}
	for range names {
		<-done
	}
	return errors.Join(errs...)
}

// stop ends the supervisor, which ends its children, and whatever a killed supervisor left.
func stop(state *State) error {
	if state.Supervisor != nil {
		if err := state.Supervisor.Stop(supervisorGrace); err != nil {
			return fmt.Errorf("stopping the supervisor of %s: %w", state.Spec.Name, err)
		}
	}
	return children.StopRecorded(filepath.Join(state.Paths.Dir, childrenFile))
}
