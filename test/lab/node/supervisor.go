// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

// The processes of a node.
const (
	// Agent is the node agent.
	Agent = "agent"
	// Kubelet is the minimal kubelet.
	Kubelet = "kubelet"
)

const (
	childGrace   = 5 * time.Second
	restartDelay = time.Second
)

// ChildStatus says how one of a node's processes is.
type ChildStatus struct {
	// Running says whether it runs.
	Running bool `json:"running"`
	// PID is its process while it runs.
	PID int `json:"pid,omitempty"`
	// Starts is how often it was started.
	Starts int `json:"starts"`
	// LastExit says how it ended last.
	LastExit string `json:"lastExit,omitempty"`
}

// child is a process that the supervisor starts and watches.
type child struct {
	spec    process.Spec
	restart bool
	// wanted says that it should run: it was not killed on purpose.
	wanted bool
	proc   *process.Process
	status ChildStatus
}

// supervisor holds a node's mount namespace and is the parent of its processes.
type supervisor struct {
	dir string

	mu       sync.Mutex
	children map[string]*child
	all      sync.WaitGroup
}

// Supervise runs a node until the context ends. It must be the first thing in a mount namespace of its own.
func Supervise(ctx context.Context, lab cluster.Dir, name string) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	if state.Spec.FakeGPU != "" {
		if err := mountDriver(state.Paths.DriverRoot); err != nil {
			return err
		}
	}
	children, err := childrenOf(state)
	if err != nil {
		return err
	}
	s := &supervisor{dir: state.Paths.Dir, children: children}
	listener, err := net.Listen("unix", state.Paths.Control)
	if err != nil {
		return fmt.Errorf("listening for commands: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	for _, name := range []string{Kubelet, Agent} {
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

// childrenOf says what runs on a node.
func childrenOf(state *State) (map[string]*child, error) {
	p := state.Paths
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "TMPDIR=/tmp"}
	children := map[string]*child{Kubelet: {restart: true, spec: process.Spec{
		// Even if the file has been replaced meanwhile, this is the program that runs now.
		Path: "/proc/self/exe", Env: env, Log: filepath.Join(p.Logs, Kubelet+".log"),
		Args: []string{"kubelet", "--node", state.Spec.Name, "--kubeconfig", p.KubeletKubeconfig,
			"--registry", p.Registry, "--cdi", p.CDI, "--state", p.Dir},
	}}}
	if len(state.Spec.Agent) == 0 {
		return children, nil
	}
	command, err := substitute(state.Spec.Agent, state.values())
	if err != nil {
		return nil, err
	}
	extra, err := substitute(state.Spec.AgentEnv, state.values())
	if err != nil {
		return nil, err
	}
	children[Agent] = &child{restart: state.Spec.RestartAgent, spec: process.Spec{
		Path: command[0], Args: command[1:], Log: filepath.Join(p.Logs, Agent+".log"),
		Env: append(append(env, "FAKEGPU_STATE="+p.GPUState), extra...),
	}}
	return children, nil
}

// start starts a process unless it runs.
func (s *supervisor) start(name string) error {
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
	p, err := process.Start(c.spec)
	if err != nil {
		return err
	}
	c.proc = p
	c.status = ChildStatus{Running: true, PID: p.PID, Starts: c.status.Starts + 1, LastExit: c.status.LastExit}
	s.all.Go(func() { s.watch(name, c, p) })
	return s.record()
}

// watch notices a process's end, and starts it again where that is wanted.
func (s *supervisor) watch(name string, c *child, p *process.Process) {
	<-p.Done()
	s.mu.Lock()
	c.status.Running, c.status.PID = false, 0
	c.status.LastExit = "exit status 0"
	if p.Err() != nil {
		c.status.LastExit = p.Err().Error()
	}
	again := c.wanted && c.restart
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
func (s *supervisor) kill(name string, sig syscall.Signal) error {
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
	case <-time.After(childGrace):
		return p.Stop(0)
	}
}

// stopAll ends the agent, then the kubelet.
func (s *supervisor) stopAll() error {
	var errs []error
	for _, name := range []string{Agent, Kubelet} {
		if _, ok := s.children[name]; ok {
			errs = append(errs, s.kill(name, syscall.SIGTERM))
		}
	}
	s.all.Wait()
	return errors.Join(errs...)
}

// record writes down which processes run, for the case that the supervisor is killed and cannot end them.
func (s *supervisor) record() error {
	var running []process.Identity
	for _, c := range s.children {
		if c.proc != nil && c.status.Running {
			running = append(running, c.proc.Identity)
		}
	}
	return cluster.WriteJSON(filepath.Join(s.dir, childrenFile), running)
}

func (s *supervisor) statuses() map[string]ChildStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses := map[string]ChildStatus{}
	for name, c := range s.children {
		statuses[name] = c.status
	}
	return statuses
}
