// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

// stopGrace is how long a component may take to end by itself.
const stopGrace = 10 * time.Second

// labRun is a lab at work: its state, and those of its processes that this program started.
type labRun struct {
	dir      Dir
	state    *State
	client   *http.Client
	children map[string]*process.Process
}

func newRun(dir Dir, state *State) (*labRun, error) {
	client, err := healthClient(dir)
	if err != nil {
		return nil, err
	}
	return &labRun{dir: dir, state: state, client: client, children: map[string]*process.Process{}}, nil
}

// Up brings a lab up and returns its state. A start that fails stops what it started and keeps the logs.
func Up(ctx context.Context, o Options) (*State, error) {
	unlock, err := Lock(string(o.Dir))
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := o.Dir.Load()
	if err != nil && !errors.Is(err, ErrNoLab) {
		return nil, err
	}
	if old != nil && old.Running() {
		return nil, fmt.Errorf("a lab is already running in %s: bring it down first", o.Dir)
	}
	// What an earlier lab left behind, after a reboot for example, is of no use to a new one.
	if err := removeFiles(o.Dir, false); err != nil {
		return nil, err
	}
	state, err := prepare(o, time.Now())
	if err != nil {
		return nil, fmt.Errorf("preparing the lab in %s: %w", o.Dir, err)
	}
	run, err := newRun(o.Dir, state)
	if err != nil {
		return nil, err
	}
	if err := run.startAll(ctx); err != nil {
		return nil, errors.Join(err, run.stopAll())
	}
	return state, nil
}

// startAll starts the components as they depend on each other: etcd, the API server, then its two clients at once.
func (l *labRun) startAll(ctx context.Context) error {
	for _, name := range []string{binaries.Etcd, binaries.APIServer} {
		c, err := l.state.Component(name)
		if err != nil {
			return err
		}
		if err := l.start(ctx, c); err != nil {
			return err
		}
	}
	clients := []string{binaries.ControllerManager, binaries.Scheduler}
	waiting := make([]*Component, 0, len(clients))
	for _, name := range clients {
		c, err := l.state.Component(name)
		if err != nil {
			return err
		}
		if err := l.launch(c); err != nil {
			return err
		}
		waiting = append(waiting, c)
	}
	errs := make([]error, len(waiting))
	var all sync.WaitGroup
	for i, c := range waiting {
		all.Go(func() { errs[i] = l.awaitHealth(ctx, c) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// stopAll stops the components in the reverse order of their start.
func (l *labRun) stopAll() error {
	var errs []error
	for i := len(l.state.Components) - 1; i >= 0; i-- {
		errs = append(errs, stop(&l.state.Components[i], stopGrace))
	}
	return errors.Join(append(errs, l.dir.save(l.state))...)
}

func stop(c *Component, grace time.Duration) error {
	if c.Process == nil {
		return nil
	}
	if err := c.Process.Stop(grace); err != nil {
		return fmt.Errorf("stopping %s: %w", c.Name, err)
	}
	c.Process = nil
	return nil
}
