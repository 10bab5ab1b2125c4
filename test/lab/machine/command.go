// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/children"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

func finder(lab cluster.Dir) func(netip.Addr) (string, error) {
	return func(address netip.Addr) (string, error) { return Find(lab, address) }
}

// Down ends a machine and removes it; the Node object goes too unless it is to be kept, as after a crash.
func Down(ctx context.Context, lab cluster.Dir, name string, keepObject bool) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	if keepObject {
		return remove(ctx, nil, state, false)
	}
	labState, err := lab.Load()
	if err != nil {
		return err
	}
	client, err := labState.Admin()
	if err != nil {
		return err
	}
	return remove(ctx, client, state, true)
}

// StopAll ends all machines of a lab and removes them, without a word to the API server, which may be gone.
func StopAll(ctx context.Context, lab cluster.Dir) error {
	list, err := List(lab)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		errs = append(errs, remove(ctx, nil, s, false))
	}
	return errors.Join(errs...)
}

// Reboot ends all processes of a machine at once and boots it again: what lay in memory is gone, the disk is as it was.
func Reboot(ctx context.Context, lab cluster.Dir, name string) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	labState, err := lab.Load()
	if err != nil {
		return err
	}
	client, err := labState.Admin()
	if err != nil {
		return err
	}
	if err := state.stop(); err != nil {
		return err
	}
	if err := state.Spec.GPUs.Reboot(ctx, state.Dir.GPUState()); err != nil {
		return fmt.Errorf("rebooting the GPUs: %w", err)
	}
	return state.start(ctx, lab, client, nil)
}

// Kill sends a signal to one of a machine's programs and returns when it has ended; it is not started again.
func Kill(ctx context.Context, lab cluster.Dir, name, which string, sig syscall.Signal) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	if err := children.NewControl(state.Dir.control()).Kill(ctx, which, sig); err != nil {
		return fmt.Errorf("ending the %s of %s: %w", which, name, err)
	}
	return nil
}

// Start starts one of a machine's programs again.
func Start(ctx context.Context, lab cluster.Dir, name, which string) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	if err := children.NewControl(state.Dir.control()).Start(ctx, which); err != nil {
		return fmt.Errorf("starting the %s of %s: %w", which, name, err)
	}
	return nil
}

// Import puts the images of an archive into a machine's store, where kubelet finds them.
func Import(ctx context.Context, s *State, archive string) error {
	// Listening is not yet answering: right after its start containerd has a while to open its stores.
	var output []byte
	var err error
	for range 20 {
		output, err = exec.CommandContext(ctx, filepath.Join(s.Spec.Runtime, "ctr"),
			"--address", s.inside(containerdSocket), "--namespace", "k8s.io", "images", "import", "--local", "--all-platforms=false", archive).CombinedOutput()
		if err == nil || ctx.Err() != nil {
			break
		}
		if _, statErr := children.NewControl(s.Dir.control()).Status(ctx); statErr != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
	if err != nil {
		return fmt.Errorf("importing %s: %w\n%s", archive, err, output)
	}
	return nil
}

// Status is a machine as it is now.
type Status struct {
	State

	// Running says whether the machine runs; Processes are its programs.
	Running   bool                       `json:"running"`
	Processes map[string]children.Status `json:"processes,omitempty"`
	// Root is where the host sees the machine's files while it runs; PodNetwork is its pods' network.
	Root       string `json:"root,omitempty"`
	PodNetwork string `json:"podNetwork"`
	// GPUState and PodLogs are the fake GPUs' state and the directory of the containers' logs.
	GPUState string `json:"gpuState"`
	PodLogs  string `json:"podLogs"`
}

// Describe reads a machine's status.
func Describe(ctx context.Context, lab cluster.Dir, name string) (*Status, error) {
	state, err := Load(lab, name)
	if err != nil {
		return nil, err
	}
	status := &Status{
		State: *state, PodNetwork: state.Spec.PodNetwork().String(), GPUState: state.Dir.GPUState(), PodLogs: state.Dir.PodLogs(),
	}
	if state.Init == nil || !state.Init.Alive() {
		return status, nil
	}
	status.Running, status.Root = true, state.inside("/")
	status.Processes, err = children.NewControl(state.Dir.control()).Status(ctx)
	return status, err
}

// Command is a program of the host's that runs on a machine, in all its namespaces.
func Command(ctx context.Context, lab cluster.Dir, name string, args ...string) (*exec.Cmd, error) {
	state, err := Load(lab, name)
	if err != nil {
		return nil, err
	}
	if state.Init == nil || !state.Init.Alive() {
		return nil, fmt.Errorf("the machine %s does not run", name)
	}
	enter := []string{"--target", strconv.Itoa(state.Init.PID), "--mount", "--uts", "--ipc", "--net"}
	if !state.Spec.HostPIDs {
		enter = append(enter, "--pid")
	}
	return exec.CommandContext(ctx, "nsenter", append(append(enter, "--"), args...)...), nil
}
