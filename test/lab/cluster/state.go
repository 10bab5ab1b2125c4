// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a control plane of its own on loopback: etcd, the API server, the controller manager and the
// scheduler, with generated certificates, below one directory that also records what was started.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/test/lab/process"
)

// stateVersion is the version of the state file's layout.
const stateVersion = 1

// ErrNoLab says that a directory holds no lab.
var ErrNoLab = errors.New("no lab there")

// State is what a lab's directory records about it.
type State struct {
	// Version is the layout's version.
	Version int `json:"version"`
	// Binaries is the directory of the programs.
	Binaries string `json:"binaries"`
	// Server is the API server's URL.
	Server string `json:"server"`
	// Kubeconfig is the administrator's kubeconfig file.
	Kubeconfig string `json:"kubeconfig"`
	// Ports are the loopback ports in use.
	Ports Ports `json:"ports"`
	// Components are the control plane's processes, in the order of their start.
	Components []Component `json:"components"`
}

// Ports are a lab's loopback ports.
type Ports struct {
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

// Component is one process of the control plane, or one that was added beside it.
type Component struct {
	// Name is the component's name, for one of the control plane the program's.
	Name string `json:"name"`
	// Path is the program of a component that is not the control plane's; Env is what its environment has beyond the least.
	Path string   `json:"path,omitempty"`
	Env  []string `json:"env,omitempty"`
	// Args are its arguments, the same at every start.
	Args []string `json:"args"`
	// Health is the URL that answers 200 once it is ready; "" for one that says nothing about it.
	Health string `json:"health,omitempty"`
	// Works is a URL that answers 200 once the component does its work, where health alone does not say so.
	Works string `json:"works,omitempty"`
	// Log is its log file.
	Log string `json:"log"`
	// Process is the process started last; a component that was stopped has none.
	Process *process.Identity `json:"process,omitempty"`
}

// Running says whether the component's process runs.
func (c Component) Running() bool { return c.Process != nil && c.Process.Alive() }

// Component finds a component by name.
func (s *State) Component(name string) (*Component, error) {
	i := slices.IndexFunc(s.Components, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the lab has no component %q", name)
	}
	return &s.Components[i], nil
}

// Running says whether any component runs.
func (s *State) Running() bool { return slices.ContainsFunc(s.Components, Component.Running) }

// Dir is a lab's directory.
type Dir string

func (d Dir) path(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// Certs is the directory of certificates and keys.
func (d Dir) Certs() string { return d.path("certs") }

// Nodes is the directory of the simulated nodes.
func (d Dir) Nodes() string { return d.path("nodes") }

// EgressSocket is what the API server reaches machines through.
func (d Dir) EgressSocket() string { return d.path("egress.sock") }

// EgressConfig is the file that is there where the lab was brought up for machines.
func (d Dir) EgressConfig() string { return d.path("egress.yaml") }

func (d Dir) kubeconfig() string { return d.path("kubeconfig") }
func (d Dir) state() string      { return d.path("state.json") }
func (d Dir) logs() string       { return d.path("logs") }
func (d Dir) etcd() string       { return d.path("etcd") }

// Load reads a lab's state; ErrNoLab if there is none.
func (d Dir) Load() (*State, error) {
	content, err := os.ReadFile(d.state())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", d.state(), ErrNoLab)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the lab's state: %w", err)
	}
	state := &State{}
	if err := json.Unmarshal(content, state); err != nil {
		return nil, fmt.Errorf("reading the lab's state in %s: %w", d.state(), err)
	}
	if state.Version != stateVersion {
		return nil, fmt.Errorf("%s has version %d, this program knows %d: bring the lab down with the program that brought it up",
			d.state(), state.Version, stateVersion)
	}
	return state, nil
}

func (d Dir) save(state *State) error {
	return WriteJSON(d.state(), state)
}

// WriteJSON replaces a file whole: readers see the old content or the new one.
func WriteJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return nil
}

// Lock keeps other commands off a directory, made if need be, until unlock is called or the process ends.
func Lock(dir string) (unlock func(), err error) {
	for {
		unlock, err := tryLock(dir)
		if err != nil || unlock != nil {
			return unlock, err
		}
	}
}

// tryLock returns neither a lock nor an error if the lock file was removed, along with the lab, while it waited.
func tryLock(dir string) (func(), error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making %s: %w", dir, err)
	}
	path := lockFile(dir)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of %s: %w", dir, err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, err), file.Close())
	}
	held, heldErr := file.Stat()
	named, namedErr := os.Stat(path)
	if heldErr == nil && namedErr == nil && os.SameFile(held, named) {
		return func() { _ = file.Close() }, nil
	}
	_ = file.Close()
	return nil, nil
}

func lockFile(dir string) string { return filepath.Join(dir, ".lock") }
