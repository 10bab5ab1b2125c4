// SPDX-License-Identifier: Apache-2.0

// Package node runs simulated GPU nodes: fake GPUs, a minimal kubelet and a real node agent, in a mount namespace of
// their own, on a lab's control plane.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

// ErrNoNode says that a lab has no node of a name.
var ErrNoNode = errors.New("the lab has no such node")

// Board is a number of equal GPUs.
type Board struct {
	// Name is the board's name, as fakegpu knows it.
	Name string `json:"name"`
	// GPUs is their number.
	GPUs int `json:"gpus"`
	// MIG is on or off.
	MIG string `json:"mig"`
}

// GPUs are a node's fake GPUs.
type GPUs struct {
	// FakeGPU is the fakegpu program; empty means a node without GPUs.
	FakeGPU string `json:"fakegpu,omitempty"`
	// Boards are its GPUs, in the order of their index.
	Boards []Board `json:"boards,omitempty"`
	// Seed is what the GPUs' UUIDs derive from.
	Seed string `json:"seed,omitempty"`
	// Driver is the version that the fake driver reports; empty means fakegpu's default.
	Driver string `json:"driver,omitempty"`
	// Limits is where that driver keeps the memory limits of cgroups, dmem or misc; empty means that programs are not told
	// their cgroups, which drivers without such limits need not know.
	Limits string `json:"limits,omitempty"`
}

// Spec says what a node is. It is recorded, so that later commands start the same again.
type Spec struct {
	GPUs

	// Name is the node's name.
	Name string `json:"name"`
	// Labels are the Node's, beyond the usual ones.
	Labels map[string]string `json:"labels,omitempty"`
	// Agent is the agent's command with placeholders; empty means no agent.
	Agent []string `json:"agent,omitempty"`
	// AgentEnv is what the agent's environment holds beyond the usual.
	AgentEnv []string `json:"agentEnv,omitempty"`
	// RestartAgent starts the agent again when it ends by itself.
	RestartAgent bool `json:"restartAgent,omitempty"`
	// ServiceAccount is who the agent is, as namespace/name; empty means the administrator.
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// Paths are a node's files and directories.
type Paths struct {
	// Dir is the node's directory below the lab's.
	Dir string `json:"dir"`
	// Kubelet is the kubelet's root, with plugins and plugins_registry. It is short: a socket's path has at most 108 bytes.
	Kubelet string `json:"kubelet"`
	// Plugins and Registry are the two directories of driver sockets below it.
	Plugins  string `json:"plugins"`
	Registry string `json:"registry"`
	// Control is the supervisor's socket.
	Control string `json:"control"`
	// Run is what a boot clears, in memory where the machine has /dev/shm.
	Run string `json:"run"`
	// CDI is the directory of CDI specifications.
	CDI string `json:"cdi"`
	// DriverRoot is the fake driver's root.
	DriverRoot string `json:"driverRoot"`
	// GPUState is the fake GPUs' state file.
	GPUState string `json:"gpuState"`
	// Kubeconfig is the agent's.
	Kubeconfig string `json:"kubeconfig"`
	// KubeletKubeconfig is the kubelet's.
	KubeletKubeconfig string `json:"kubeletKubeconfig"`
	// Logs is the directory of the logs.
	Logs string `json:"logs"`
}

// State is what a node's directory records about it.
type State struct {
	Spec  Spec  `json:"spec"`
	Paths Paths `json:"paths"`
	// Supervisor is the process that holds the node together.
	Supervisor *process.Identity `json:"supervisor,omitempty"`
}

func nodeDir(lab cluster.Dir, name string) string { return filepath.Join(lab.Nodes(), name) }

func stateFile(dir string) string { return filepath.Join(dir, "node.json") }

// ChildrenFile names, in a node's directory, the record of the supervisor's children.
const childrenFile = "processes.json"

// makePaths makes a node's directories.
func makePaths(dir string) (Paths, error) {
	short, err := os.MkdirTemp("/tmp", "sluice-")
	if err != nil {
		return Paths{}, fmt.Errorf("making a short directory for sockets: %w", err)
	}
	p := Paths{
		Dir: dir, Kubelet: short,
		Plugins: filepath.Join(short, "plugins"), Registry: filepath.Join(short, "plugins_registry"),
		Control: filepath.Join(short, "control"), Run: filepath.Join(short, "run"),
		CDI: filepath.Join(dir, "cdi"), DriverRoot: filepath.Join(dir, "driver"), GPUState: filepath.Join(dir, "gpu.state"),
		Kubeconfig: filepath.Join(dir, "agent.kubeconfig"), KubeletKubeconfig: filepath.Join(dir, "kubelet.kubeconfig"),
		Logs: filepath.Join(dir, "logs"),
	}
	if run, err := os.MkdirTemp("/dev/shm", "sluice-"); err == nil {
		p.Run = run
	}
	for _, made := range []string{p.Plugins, p.Registry, p.Run, p.CDI, p.Logs} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			return p, fmt.Errorf("making the node's directories: %w", err)
		}
	}
	return p, nil
}

// remove removes all of a node's files.
func (p Paths) remove() error {
	return errors.Join(os.RemoveAll(p.Kubelet), os.RemoveAll(p.Run), os.RemoveAll(p.Dir))
}

// Load reads a node's state; ErrNoNode if there is none.
func Load(lab cluster.Dir, name string) (*State, error) {
	path := stateFile(nodeDir(lab, name))
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", name, ErrNoNode)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node's state: %w", err)
	}
	state := &State{}
	if err := json.Unmarshal(content, state); err != nil {
		return nil, fmt.Errorf("reading the node's state in %s: %w", path, err)
	}
	return state, nil
}

func (s *State) save() error { return cluster.WriteJSON(stateFile(s.Paths.Dir), s) }

// Names lists a lab's nodes.
func Names(lab cluster.Dir) ([]string, error) {
	entries, err := os.ReadDir(lab.Nodes())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if _, err := os.Stat(stateFile(filepath.Join(lab.Nodes(), entry.Name()))); err == nil {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
