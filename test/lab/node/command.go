// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/children"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/kubelet"
)

// Kill sends a signal to one of a node's processes and returns when it has ended; it is not started again.
func Kill(ctx context.Context, lab cluster.Dir, name, which string, sig syscall.Signal) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	return children.NewControl(state.Paths.Control).Kill(ctx, which, sig)
}

// Start starts one of a node's processes again, as it was started first; the agent gets a fresh token.
func Start(ctx context.Context, lab cluster.Dir, name, which string, wait Wait) error {
	labState, state, client, err := reach(lab, name)
	if err != nil {
		return err
	}
	want := awaited{processes: []string{which}, driver: wait.Driver, since: time.Now()}
	if status, err := children.NewControl(state.Paths.Control).Status(ctx); err == nil && status[which].Running {
		return nil
	}
	if which == Agent {
		err = writeAgentIdentity(ctx, client, lab, labState, state)
	} else {
		// The killed kubelet's list must not be taken for that of the new one.
		err = removeIfThere(filepath.Join(state.Paths.Dir, kubelet.DriversFile))
	}
	if err != nil {
		return err
	}
	if err := children.NewControl(state.Paths.Control).Start(ctx, which); err != nil {
		return fmt.Errorf("starting the %s of %s: %w", which, name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Timeout)
	defer cancel()
	return await(ctx, state, want)
}

// Reboot ends a node's processes at once, clears what a boot clears, and starts them again.
func Reboot(ctx context.Context, lab cluster.Dir, name string, wait Wait) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	for _, which := range []string{Agent, Kubelet} {
		if which == Agent && len(state.Spec.Agent) == 0 {
			continue
		}
		if err := Kill(ctx, lab, name, which, syscall.SIGKILL); err != nil {
			return fmt.Errorf("cutting %s off: %w", name, err)
		}
	}
	if err := state.Spec.GPUs.Reboot(ctx, state.Paths.GPUState); err != nil {
		return err
	}
	if err := errors.Join(empty(state.Paths.Run), removeSockets(state.Paths.Registry)); err != nil {
		return fmt.Errorf("clearing what a boot clears: %w", err)
	}
	if err := Start(ctx, lab, name, Kubelet, Wait{Timeout: wait.Timeout}); err != nil {
		return err
	}
	if len(state.Spec.Agent) == 0 {
		return nil
	}
	return Start(ctx, lab, name, Agent, wait)
}

// Status is a node as it is now.
type Status struct {
	State

	// Processes are the supervisor's children; empty if the supervisor does not answer.
	Processes map[string]children.Status `json:"processes,omitempty"`
	// Drivers are those registered with the kubelet.
	Drivers []kubelet.Driver `json:"drivers"`
}

// Describe reads a node's status.
func Describe(ctx context.Context, lab cluster.Dir, name string) (*Status, error) {
	state, err := Load(lab, name)
	if err != nil {
		return nil, err
	}
	status := &Status{State: *state}
	status.Drivers, _ = registered(state)
	if state.Supervisor != nil && state.Supervisor.Alive() {
		status.Processes, err = children.NewControl(state.Paths.Control).Status(ctx)
	}
	return status, err
}

func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return errors.Join(errs...)
}

func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	var errs []error
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket != 0 {
			errs = append(errs, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}
