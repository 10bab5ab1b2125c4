// SPDX-License-Identifier: Apache-2.0

// Package children starts and watches the processes of a node for its supervisor, and serves commands on them over a socket.
package children

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

// Grace is how long a process may take to end by itself.
const Grace = 5 * time.Second

const restartDelay = time.Second

// Status says how one of a node's processes is.
type Status struct {
	// Running says whether it runs.
	Running bool `json:"running"`
	// PID is its process while it runs.
	PID int `json:"pid,omitempty"`
	// Starts is how often it was started.
	Starts int `json:"starts"`
	// LastExit says how it ended last.
	LastExit string `json:"lastExit,omitempty"`
}

// Child is a process to start and watch.
type Child struct {
	// Spec says how it is started.
	Spec process.Spec
	// Restart starts it again when it ends by itself.
	Restart bool

	// wanted says that it should run: it was not killed on purpose.
	wanted bool
	proc   *process.Process
	status Status
}

// Set is the processes of one node.
type Set struct {
	record   string
	order    []string
	children map[string]*Child

	mu  sync.Mutex
	all sync.WaitGroup
}

// New makes a set of processes. They start in the order given and end in the reverse one; record is the file that names
// those that run, for the case that their parent is killed and cannot end them.
func New(record string, order []string, children map[string]*Child) *Set {
	return &Set{record: record, order: order, children: children}
}

// Run starts all processes, serves commands on the socket, and ends the processes when the context ends.
func (s *Set) Run(ctx context.Context, socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listening for commands: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	for _, name := range s.order {
		if _, ok := s.children[name]; !ok {
			continue
		}
		if err := s.start(name); err != nil {
			return errors.Join(err, s.stopAll())
		}
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("serving commands: %w", err)
	}
	return errors.Join(err, server.Close(), s.stopAll())
}

// start starts a process unless it runs.
func (s *Set) start(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.children[name]
	if !ok {
		return fmt.Errorf("this node has no %s", name)
	}
	c.wanted = true
	if c.status.Running {
		return nil
	}
	p, err := process.Start(c.Spec)
	if err != nil {
		return err
	}
	c.proc = p
	c.status = Status{Running: true, PID: p.PID, Starts: c.status.Starts + 1, LastExit: c.status.LastExit}
	s.all.Go(func() { s.watch(name, c, p) })
	return s.write()
}

// watch notices a process's end, and starts it again where that is wanted.
func (s *Set) watch(name string, c *Child, p *process.Process) {
	<-p.Done()
	s.mu.Lock()
	c.status.Running, c.status.PID = false, 0
	c.status.LastExit = "exit status 0"
	if p.Err() != nil {
		c.status.LastExit = p.Err().Error()
	}
	again := c.wanted && c.Restart
	s.mu.Unlock()
	if !again {
		return
	}
	fmt.Fprintf(os.Stderr, "%s ended (%s); starting it again\n", name, c.status.LastExit)
	time.AfterFunc(restartDelay, func() {
		s.mu.Lock()
		still := c.wanted
		s.mu.Unlock()
		if still {
			if err := s.start(name); err != nil {
				fmt.Fprintf(os.Stderr, "starting %s again: %v\n", name, err)
			}
		}
	})
}

// kill sends a signal to a process, waits for its end and leaves it ended.
func (s *Set) kill(name string, sig syscall.Signal) error {
	s.mu.Lock()
	c, ok := s.children[name]
	if !ok {
		s.mu.Unlock()
		return fmt.Errorf("this node has no %s", name)
	}
	c.wanted = false
	p := c.proc
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, process.ErrGone) {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-time.After(Grace):
		return p.Stop(0)
	}
}

// stopAll ends the processes, the last started first.
func (s *Set) stopAll() error {
	var errs []error
	for _, name := range slices.Backward(s.order) {
		if _, ok := s.children[name]; ok {
			errs = append(errs, s.kill(name, syscall.SIGTERM))
		}
	}
	s.all.Wait()
	return errors.Join(errs...)
}

// write records which processes run.
func (s *Set) write() error {
	var running []process.Identity
	for _, c := range s.children {
		if c.proc != nil && c.status.Running {
			running = append(running, c.proc.Identity)
		}
	}
	return cluster.WriteJSON(s.record, running)
}

func (s *Set) statuses() map[string]Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses := map[string]Status{}
	for name, c := range s.children {
		statuses[name] = c.status
	}
	return statuses
}

// StopRecorded ends the processes that a record names, for a parent that was killed.
func StopRecorded(record string) error {
	content, err := os.ReadFile(record)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the record of processes: %w", err)
	}
	var children []process.Identity
	if err := json.Unmarshal(content, &children); err != nil {
		return fmt.Errorf("reading the record of processes: %w", err)
	}
	var errs []error
	for _, child := range children {
		errs = append(errs, child.Stop(Grace))
	}
	return errors.Join(errs...)
}
