// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sluice-gpu/sluice/test/lab/children"
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
	all, err := childrenOf(state)
	if err != nil {
		return err
	}
	set := children.New(filepath.Join(state.Paths.Dir, childrenFile), []string{Kubelet, Agent}, all)
	return set.Run(ctx, state.Paths.Control)
}

// childrenOf says what runs on a node.
func childrenOf(state *State) (map[string]*children.Child, error) {
	p := state.Paths
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "TMPDIR=/tmp"}
	all := map[string]*children.Child{Kubelet: {Restart: true, Spec: process.Spec{
		// Even if the file has been replaced meanwhile, this is the program that runs now.
		Path: "/proc/self/exe", Env: env, Log: filepath.Join(p.Logs, Kubelet+".log"),
		Args: []string{"kubelet", "--node", state.Spec.Name, "--kubeconfig", p.KubeletKubeconfig,
			"--registry", p.Registry, "--cdi", p.CDI, "--state", p.Dir},
	}}}
	if len(state.Spec.Agent) == 0 {
		return all, nil
	}
	command, err := substitute(state.Spec.Agent, state.values())
	if err != nil {
		return nil, err
	}
	extra, err := substitute(state.Spec.AgentEnv, state.values())
	if err != nil {
		return nil, err
	}
	all[Agent] = &children.Child{Restart: state.Spec.RestartAgent, Spec: process.Spec{
		Path: command[0], Args: command[1:], Log: filepath.Join(p.Logs, Agent+".log"),
		Env: append(append(env, "FAKEGPU_STATE="+p.GPUState), extra...),
	}}
	return all, nil
}
