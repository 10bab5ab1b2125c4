// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Node describes a simulated node.
type Node struct {
	// Name is the Node's name.
	Name string
	// Pool is the value of the node label by which pools choose; "" for none.
	Pool string
	// Board and GPUs are what the node has.
	Board string
	GPUs  int
	// MIG is true where MIG mode is on at first.
	MIG bool
	// Prepare, where there is one, puts into the node's driver root what a driver may have and the fake one has not.
	Prepare func(root string) error
	// AgentArgs are further flags of the agent.
	AgentArgs []string
}

// AddNode brings up a node: fake GPUs, the minimal kubelet and the real agent.
func (s *Stack) AddNode(ctx context.Context, n Node) error {
	mode := "off"
	if n.MIG {
		mode = "on"
	}
	args := []string{"node", "up", "--name", n.Name, "--board", n.Board, "--gpus", strconv.Itoa(n.GPUs), "--mig", mode,
		"--fakegpu", Path("test", "fakegpu", "build", "fakegpu"), "--service-account", Namespace + "/sluice-node-agent"}
	if n.Pool != "" {
		args = append(args, "--labels", "node-restriction.kubernetes.io/gpu-pool="+n.Pool)
	}
	args = append(args, "--", Path("bin", "node-agent"),
		"--node-name={{node}}", "--kubeconfig={{kubeconfig}}", "--driver-root={{driver-root}}", "--dev-root={{driver-root}}",
		"--state-dir={{dir}}/state", "--share-dir={{dir}}/shares", "--cdi-dir={{cdi}}",
		"--library="+Path("interceptor", "build", "libsluice.so"),
		"--mps-dir={{kubelet}}/mps", "--mps-cgroup=", "--mps-namespace=",
		"--plugin-dir={{plugins}}", "--registrar-dir={{registry}}", "--cdi-hook-path="+Path("bin", "nvidia-cdi-hook"),
		"--sluice-hook-path="+Path("bin", "sluice-cdi-hook"))
	args = append(args, n.AgentArgs...)
	if err := s.lab(ctx, args...); err != nil {
		return err
	}
	if n.Prepare == nil {
		return nil
	}
	return n.Prepare(filepath.Join(s.nodeDir(n.Name), "driver"))
}

// RemoveNode takes a node away, with its Node object.
func (s *Stack) RemoveNode(ctx context.Context, name string) error {
	return s.lab(ctx, "node", "down", "--name", name)
}

// KillAgent ends a node's agent as a crash would.
func (s *Stack) KillAgent(ctx context.Context, node string) error {
	return s.lab(ctx, "node", "agent-kill", "--name", node)
}

// StartAgent starts a node's agent again.
func (s *Stack) StartAgent(ctx context.Context, node string) error {
	return s.lab(ctx, "node", "agent-start", "--name", node)
}

// FakeGPU runs a command of the fake GPU's CLI on a node's state and returns its output.
func (s *Stack) FakeGPU(ctx context.Context, node string, args ...string) (string, error) {
	args = append([]string{args[0], "--state", filepath.Join(s.nodeDir(node), "gpu.state")}, args[1:]...)
	out, err := exec.CommandContext(ctx, Path("test", "fakegpu", "build", "fakegpu"), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("fakegpu %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// MPSDir is the directory of a node's MPS daemons.
func (s *Stack) MPSDir(node string) (string, error) {
	data, err := os.ReadFile(filepath.Join(s.nodeDir(node), "node.json"))
	if err != nil {
		return "", fmt.Errorf("reading the record of node %s: %w", node, err)
	}
	var state struct{ Paths struct{ Kubelet string } }
	if err := json.Unmarshal(data, &state); err != nil {
		return "", fmt.Errorf("reading the record of node %s: %w", node, err)
	}
	return filepath.Join(state.Paths.Kubelet, "mps"), nil
}

func (s *Stack) nodeDir(name string) string { return filepath.Join(s.Dir, "nodes", name) }

// Poll calls done every 50 ms until it returns true or an error, or the context ends.
func Poll(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}
