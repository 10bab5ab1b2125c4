// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/node"
)

func nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Run simulated GPU nodes on the lab"}
	cmd.AddCommand(
		nodeUpCommand(), nodeDownCommand(), nodeListCommand(), nodeStatusCommand(), nodeRebootCommand(), superviseCommand(),
		nodeStartCommand(node.Agent, "again, with a fresh token"), nodeKillCommand(node.Agent),
		nodeStartCommand(node.Kubelet, "again"), nodeKillCommand(node.Kubelet),
	)
	return cmd
}

// nodeFlags adds --dir and --name.
func nodeFlags(cmd *cobra.Command) func() (cluster.Dir, string, error) {
	dir := dirFlag(cmd)
	name := cmd.Flags().String("name", "", "name of the node (required)")
	_ = cmd.MarkFlagRequired("name")
	return func() (cluster.Dir, string, error) {
		d, err := dir()
		return d, *name, err
	}
}

// waitFlags adds what a start waits for.
func waitFlags(cmd *cobra.Command) *node.Wait {
	wait := &node.Wait{}
	cmd.Flags().StringVar(&wait.Driver, "wait-driver", "", "DRA driver whose registration with the kubelet to wait for")
	cmd.Flags().DurationVar(&wait.Timeout, "timeout", time.Minute, "how long the start may take")
	return wait
}

func nodeUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up --dir DIR --name NAME [flags] [-- AGENT ARGUMENT...]",
		Short: "Start a node: its Node object, fake GPUs, a minimal kubelet and an agent",
		Long: "Starts a node. The agent is the command after --, run in the node's mount namespace with FAKEGPU_STATE set;\n" +
			"in its arguments and in --agent-env these stand, in double braces, for the node's own: " +
			strings.Join(node.Placeholders(), ", ") + ".",
	}
	args, printResult, wait := nodeFlags(cmd), outputFlag(cmd), waitFlags(cmd)
	spec := node.Spec{}
	flags := cmd.Flags()
	flags.StringToStringVar(&spec.Labels, "labels", nil, "labels of the Node, as a=b,c=d")
	gpus := gpuFlags(cmd)
	flags.StringVar(&spec.ServiceAccount, "service-account", "", "who the agent is, as namespace/name (default the administrator)")
	flags.StringArrayVar(&spec.AgentEnv, "agent-env", nil, "variable of the agent's environment, as NAME=value; may be repeated")
	flags.BoolVar(&spec.RestartAgent, "restart-agent", false, "start the agent again when it ends by itself")
	cmd.RunE = func(cmd *cobra.Command, agent []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		spec.Name, spec.Agent = name, agent
		if spec.GPUs, err = gpus(name); err != nil {
			return err
		}
		if len(agent) > 0 {
			if spec.Agent[0], err = absolute(agent[0]); err != nil {
				return err
			}
		}
		state, err := node.Up(cmd.Context(), dir, spec, *wait)
		if err != nil {
			return fmt.Errorf("starting the node %s: %w", name, err)
		}
		return printResult(state, func(w io.Writer) { fmt.Fprintln(w, name) })
	}
	return cmd
}

// boards reads the flags that say which GPUs a node has.
func boards(first string, gpus int, mig string, extra []string) ([]node.Board, error) {
	var texts []string
	if first != "" {
		texts = append(texts, fmt.Sprintf("%s:%d:%s", first, gpus, mig))
	}
	var list []node.Board
	for _, text := range append(texts, extra...) {
		board, err := node.ParseBoard(text)
		if err != nil {
			return nil, err
		}
		list = append(list, board)
	}
	return list, nil
}

// gpuFlags adds the flags that say which fake GPUs a node has.
func gpuFlags(cmd *cobra.Command) func(node string) (node.GPUs, error) {
	var g node.GPUs
	flags := cmd.Flags()
	flags.StringVar(&g.FakeGPU, "fakegpu", "", "the fakegpu program; without it the node has no fake GPUs")
	board := flags.String("board", "", "the GPUs' board, h100-80gb for example")
	gpus := flags.Int("gpus", 1, "number of GPUs of that board")
	mig := flags.String("mig", "off", "their MIG mode: on or off")
	boardsExtra := flags.StringArray("boards-extra", nil, "further GPUs, as a100-80gb:2:on; may be repeated")
	flags.StringVar(&g.Seed, "seed", "", "what the GPUs' UUIDs derive from (default the node's name)")
	flags.StringVar(&g.Driver, "driver-version", "", "version of the fake driver (default fakegpu's)")
	flags.StringVar(&g.Limits, "limits", "", "where the fake driver keeps memory limits of cgroups, dmem or misc; with a --driver-version from 615 on, on a machine with cgroup v2")
	return func(name string) (node.GPUs, error) {
		if g.Seed == "" {
			g.Seed = name
		}
		var err error
		if g.Boards, err = boards(*board, *gpus, *mig, *boardsExtra); err != nil {
			return g, err
		}
		g.FakeGPU, err = absolute(g.FakeGPU)
		return g, err
	}
}

// absolute makes a program given by a relative path independent of where the command runs.
func absolute(path string) (string, error) {
	if !strings.Contains(path, "/") {
		return path, nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", path, err)
	}
	return abs, nil
}

func nodeDownCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "down --dir DIR --name NAME", Short: "Stop a node and remove it", Args: cobra.NoArgs}
	args := nodeFlags(cmd)
	keep := cmd.Flags().Bool("keep-object", false, "leave the Node object, as when a node vanishes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return node.Down(cmd.Context(), dir, name, *keep)
	}
	return cmd
}

func nodeStartCommand(which, how string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   which + "-start --dir DIR --name NAME",
		Short: fmt.Sprintf("Start the node's %s %s", which, how),
		Args:  cobra.NoArgs,
	}
	args, wait := nodeFlags(cmd), waitFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return node.Start(cmd.Context(), dir, name, which, *wait)
	}
	return cmd
}

func nodeKillCommand(which string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   which + "-kill --dir DIR --name NAME",
		Short: fmt.Sprintf("Kill the node's %s; it stays down until it is started", which),
		Args:  cobra.NoArgs,
	}
	args := nodeFlags(cmd)
	term := cmd.Flags().Bool("term", false, "send SIGTERM rather than SIGKILL")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		sig := syscall.SIGKILL
		if *term {
			sig = syscall.SIGTERM
		}
		return node.Kill(cmd.Context(), dir, name, which, sig)
	}
	return cmd
}
