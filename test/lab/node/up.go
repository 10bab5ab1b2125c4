// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gpu/sluice/test/lab/children"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/kubelet"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

const tailLines = 25

// Wait says what Up waits for beyond the start of a node's processes.
type Wait struct {
	// Driver is a DRA driver that must have registered; empty means none.
	Driver string
	// Timeout is how long all may take.
	Timeout time.Duration
}

// Up starts a node and returns its state. A start that fails removes what it made; the error holds the logs' ends.
func Up(ctx context.Context, lab cluster.Dir, spec Spec, wait Wait) (*State, error) {
	labState, err := lab.Load()
	if err != nil {
		return nil, err
	}
	client, err := labState.Admin()
	if err != nil {
		return nil, err
	}
	dir := nodeDir(lab, spec.Name)
	if err := os.MkdirAll(lab.Nodes(), 0o755); err != nil {
		return nil, fmt.Errorf("making the nodes' directory: %w", err)
	}
	// Making the directory decides which of two commands for the same name goes on.
	if err := os.Mkdir(dir, 0o755); errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("the lab already has a node %s: take it down first", spec.Name)
	} else if err != nil {
		return nil, fmt.Errorf("making the node's directory: %w", err)
	}
	paths, err := makePaths(dir)
	if err != nil {
		return nil, errors.Join(err, paths.remove())
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Timeout)
	defer cancel()
	state := &State{Spec: spec, Paths: paths}
	if err := state.makeFiles(ctx); err != nil {
		return nil, errors.Join(err, paths.remove())
	}
	if err := createObject(ctx, client, spec, time.Now()); err != nil {
		return nil, errors.Join(err, paths.remove())
	}
	if err := state.start(ctx, lab, labState, client, wait); err != nil {
		undo := context.WithoutCancel(ctx)
		return nil, errors.Join(err, Down(undo, lab, spec.Name, true), deleteObject(undo, client, spec.Name))
	}
	return state, nil
}

// makeFiles makes what a node has before anything runs.
func (s *State) makeFiles(ctx context.Context) error {
	if _, err := substitute(append(slices.Clone(s.Spec.Agent), s.Spec.AgentEnv...), s.values()); err != nil {
		return err
	}
	if err := s.Spec.Make(ctx, s.Paths.GPUState, s.Paths.DriverRoot); err != nil {
		return fmt.Errorf("making the fake GPUs: %w", err)
	}
	return s.save()
}

// start starts a node's processes and waits for them.
func (s *State) start(ctx context.Context, lab cluster.Dir, labState *cluster.State, client kubernetes.Interface, wait Wait) error {
	if err := writeKubeletIdentity(lab, labState, s.Spec, s.Paths, time.Now()); err != nil {
		return err
	}
	if err := writeAgentIdentity(ctx, client, lab, labState, s); err != nil {
		return err
	}
	if err := startSupervisor(lab, s); err != nil {
		return err
	}
	return await(ctx, s, awaited{processes: []string{Kubelet, Agent}, driver: wait.Driver})
}

func startSupervisor(lab cluster.Dir, state *State) error {
	p, err := process.Start(process.Spec{
		Path: "/proc/self/exe", Args: []string{"node", "supervise", "--dir", string(lab), "--name", state.Spec.Name},
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + state.Paths.Dir}, Log: supervisorLog(state), Sys: namespaces(),
	})
	if err != nil {
		return fmt.Errorf("starting the node's supervisor (it needs root, or user namespaces): %w", err)
	}
	state.Supervisor = &p.Identity
	return state.save()
}

func supervisorLog(state *State) string { return filepath.Join(state.Paths.Logs, "supervisor.log") }

// awaited is what await waits for.
type awaited struct {
	// processes must run, those of them that the node has.
	processes []string
	// driver must have registered at or after since; empty means none.
	driver string
	since  time.Time
}

// await waits until a node's processes run and the driver, if any, has registered.
func await(ctx context.Context, state *State, want awaited) error {
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		open, err := waitsFor(ctx, state, want)
		if err != nil {
			return err
		}
		if open == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s; the ends of its logs:\n%s", open, tails(state))
		case <-retry.C:
		}
	}
}

// waitsFor says what a node that is starting still lacks; an error is what no waiting will mend.
func waitsFor(ctx context.Context, state *State, want awaited) (string, error) {
	if !state.Supervisor.Alive() {
		return "", fmt.Errorf("the node's supervisor ended; the ends of its logs:\n%s", tails(state))
	}
	statuses, err := children.NewControl(state.Paths.Control).Status(ctx)
	if err != nil {
		return "the node's supervisor does not answer", nil //nolint:nilerr // it is asked again
	}
	for _, name := range want.processes {
		status, ok := statuses[name]
		switch {
		case !ok:
		case !status.Running && name == Agent && !state.Spec.RestartAgent:
			return "", fmt.Errorf("the agent ended (%s); the ends of its logs:\n%s", status.LastExit, tails(state))
		case !status.Running:
			return fmt.Sprintf("the node's %s does not run (%s)", name, status.LastExit), nil
		}
	}
	drivers, serving := registered(state)
	if !serving {
		return "the node's kubelet does not serve", nil
	}
	ready := slices.ContainsFunc(drivers, func(d kubelet.Driver) bool { return d.Name == want.driver && !d.Since.Before(want.since) })
	if want.driver != "" && !ready {
		return fmt.Sprintf("the driver %s has not registered with the node's kubelet", want.driver), nil
	}
	return "", nil
}

// registered lists the drivers that the kubelet knows; the second value is false until it serves.
func registered(state *State) ([]kubelet.Driver, bool) {
	content, err := os.ReadFile(filepath.Join(state.Paths.Dir, kubelet.DriversFile))
	if err != nil {
		return nil, false
	}
	var drivers []kubelet.Driver
	if err := json.Unmarshal(content, &drivers); err != nil {
		return nil, false
	}
	return drivers, true
}

func tails(state *State) string {
	var text strings.Builder
	for _, name := range []string{"supervisor", Kubelet, Agent} {
		path := filepath.Join(state.Paths.Logs, name+".log")
		if _, err := os.Stat(path); err == nil {
			fmt.Fprintf(&text, "--- %s\n%s\n", path, process.Tail(path, tailLines))
		}
	}
	return text.String()
}

// reach reads what commands on a running node need.
func reach(lab cluster.Dir, name string) (*cluster.State, *State, kubernetes.Interface, error) {
	labState, err := lab.Load()
	if err != nil {
		return nil, nil, nil, err
	}
	state, err := Load(lab, name)
	if err != nil {
		return nil, nil, nil, err
	}
	client, err := labState.Admin()
	if err != nil {
		return nil, nil, nil, err
	}
	return labState, state, client, nil
}
