// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Down stops the control plane and removes the lab's files. A directory without a lab is no error.
func Down(dir Dir, keepLogs bool) error {
	if _, err := os.Stat(string(dir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := Lock(string(dir))
	if err != nil {
		return err
	}
	defer unlock()
	state, err := dir.Load()
	if err != nil && !errors.Is(err, ErrNoLab) {
		return err
	}
	if state != nil {
		run := &labRun{dir: dir, state: state}
		if err := run.stopAll(); err != nil {
			return err
		}
	}
	if err := removeFiles(dir, keepLogs); err != nil {
		return err
	}
	if err := os.Remove(lockFile(string(dir))); err != nil {
		return fmt.Errorf("removing the lab's lock: %w", err)
	}
	// Best effort: the directory may be the caller's and hold other things.
	_ = os.Remove(string(dir))
	return nil
}

// removeFiles removes what a lab made, by name: the directory may be the caller's and hold other things.
func removeFiles(dir Dir, keepLogs bool) error {
	names := []string{"state.json", "state.json.new", "kubeconfig", "audit-policy.yaml", "egress.yaml", "egress.sock", "relay.sock", "certs", "etcd", "nodes", "machines"}
	if !keepLogs {
		names = append(names, "logs")
	}
	for _, name := range names {
		if err := os.RemoveAll(dir.path(name)); err != nil {
			return fmt.Errorf("removing %s: %w", dir.path(name), err)
		}
	}
	return nil
}

// Stop stops one component, killing it after the grace, and leaves its data.
func Stop(dir Dir, name string, grace time.Duration) error {
	return withComponent(dir, name, func(run *labRun, c *Component) error {
		return errors.Join(stop(c, grace), dir.save(run.state))
	})
}

// Start starts one stopped component again, on the same port with the same data, and waits until it is healthy.
// Components that have ended by themselves meanwhile are started too: elsewhere a kubelet would do so.
func Start(ctx context.Context, dir Dir, name string) error {
	return withComponent(dir, name, func(run *labRun, c *Component) error {
		if err := run.start(ctx, c); err != nil {
			return err
		}
		for i := range run.state.Components {
			other := &run.state.Components[i]
			if other.Process == nil || other.Running() {
				continue
			}
			if err := run.start(ctx, other); err != nil {
				return err
			}
		}
		return nil
	})
}

func withComponent(dir Dir, name string, do func(*labRun, *Component) error) error {
	if _, err := dir.Load(); err != nil {
		return err
	}
	unlock, err := Lock(string(dir))
	if err != nil {
		return err
	}
	defer unlock()
	state, err := dir.Load()
	if err != nil {
		return err
	}
	c, err := state.Component(name)
	if err != nil {
		return err
	}
	run, err := newRun(dir, state)
	if err != nil {
		return err
	}
	return do(run, c)
}

// StopAll stops all components and leaves every file.
func StopAll(dir Dir) error {
	if _, err := dir.Load(); errors.Is(err, ErrNoLab) {
		return nil
	}
	unlock, err := Lock(string(dir))
	if err != nil {
		return err
	}
	defer unlock()
	state, err := dir.Load()
	if err != nil {
		return err
	}
	return (&labRun{dir: dir, state: state}).stopAll()
}
