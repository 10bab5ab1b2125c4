// SPDX-License-Identifier: Apache-2.0

// Package machine runs real nodes on a lab's control plane: kubelet, containerd and real containers in namespaces of their
// own, so that several stand side by side on one host and leave nothing on it.
package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/node"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

// ErrNoMachine says that a lab has no machine of a name.
var ErrNoMachine = errors.New("the lab has no such machine")

// Spec says what a machine is. It is recorded, so that a reboot brings the same back.
type Spec struct {
	// Name is the node's name.
	Name string `json:"name"`
	// Number tells the machines of a lab apart; addresses follow from it.
	Number int `json:"number"`
	// Labels are the Node's, beyond the kubelet's own.
	Labels map[string]string `json:"labels,omitempty"`
	// Programs is the directory of kubelet, Runtime that of containerd.
	Programs string `json:"programs"`
	Runtime  string `json:"runtime"`
	// Host are the programs taken from the host.
	Host binaries.HostPrograms `json:"host"`
	// GPUs are its fake ones; without any, the machine has what DriverRoot holds.
	GPUs node.GPUs `json:"gpus"`
	// HostNetwork leaves the machine in the host's network.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// NodeIP is the node's address.
	NodeIP string `json:"nodeIP"`
}

// The addresses of machines, and the one of the kubernetes Service.
const (
	serviceAddress = "10.96.0.1"
	podNetwork     = "10.244.%d.0/24"
	nodeAddress    = "10.245.0.%d"
	mostMachines   = 200
)

// PodNetwork is the network of a machine's pods.
func (s Spec) PodNetwork() netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf(podNetwork, s.Number))
}

// Owns says whether an address is the machine's or one of its pods'.
func (s Spec) Owns(address netip.Addr) bool {
	return s.NodeIP == address.String() || s.PodNetwork().Contains(address)
}

// State is what a machine's directory records about it.
type State struct {
	Spec Spec `json:"spec"`
	// Dir is the machine's directory.
	Dir Dir `json:"dir"`
	// Init is the machine's first process; all others end with it.
	Init *process.Identity `json:"init,omitempty"`
}

// Dir is a machine's directory.
type Dir string

func (d Dir) path(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// GPUState is the state file of the machine's fake GPUs.
func (d Dir) GPUState() string { return d.path("gpu.state") }

// DriverRoot is the fake driver's root.
func (d Dir) DriverRoot() string { return d.path("driver") }

// PodLogs is the directory of the containers' logs.
func (d Dir) PodLogs() string { return d.path("log", "pods") }

// Logs is the directory of the machine's own logs.
func (d Dir) Logs() string { return d.path("logs") }

// dial is the socket that opens connections from within the machine; control takes commands on its processes.
func (d Dir) dial() string       { return d.path("dial.sock") }
func (d Dir) control() string    { return d.path("control.sock") }
func (d Dir) kubeconfig() string { return d.path("kubelet.kubeconfig") }
func (d Dir) bootID() string     { return d.path("boot_id") }
func (d Dir) pause() string      { return d.path("pause.tar") }

// cgroup is the machine's cgroup, the same in every hierarchy and no other machine's.
func (s *State) cgroup() string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(s.Dir))
	return fmt.Sprintf("/sluice-lab-%016x", sum.Sum64())
}

func machines(lab cluster.Dir) string { return filepath.Join(string(lab), "machines") }

func dirOf(lab cluster.Dir, name string) Dir { return Dir(filepath.Join(machines(lab), name)) }

func (d Dir) stateFile() string { return d.path("machine.json") }

// Load reads a machine's state; ErrNoMachine if there is none.
func Load(lab cluster.Dir, name string) (*State, error) {
	path := dirOf(lab, name).stateFile()
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", name, ErrNoMachine)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the machine's state: %w", err)
	}
	state := &State{}
	if err := json.Unmarshal(content, state); err != nil {
		return nil, fmt.Errorf("reading the machine's state in %s: %w", path, err)
	}
	return state, nil
}

func (s *State) save() error { return cluster.WriteJSON(s.Dir.stateFile(), s) }

// List reads the states of a lab's machines, by name.
func List(lab cluster.Dir) ([]*State, error) {
	entries, err := os.ReadDir(machines(lab))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing the machines: %w", err)
	}
	var list []*State
	for _, entry := range entries {
		state, err := Load(lab, entry.Name())
		if errors.Is(err, ErrNoMachine) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, state)
	}
	return list, nil
}

// freeNumber is the lowest number that none of the machines has.
func freeNumber(list []*State) (int, error) {
	for number := 1; number <= mostMachines; number++ {
		if !slices.ContainsFunc(list, func(s *State) bool { return s.Spec.Number == number }) {
			return number, nil
		}
	}
	return 0, fmt.Errorf("the lab has %d machines, which is as many as it can have", len(list))
}

// Find names the socket that reaches an address of one of a lab's machines.
func Find(lab cluster.Dir, address netip.Addr) (string, error) {
	list, err := List(lab)
	if err != nil {
		return "", err
	}
	for _, s := range list {
		if s.Spec.Owns(address) {
			return s.Dir.dial(), nil
		}
	}
	return "", fmt.Errorf("no machine has the address %s", address)
}
