// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

func envCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env --dir DIR",
		Short: "Print the shell lines that point kubectl at the lab",
		Args:  cobra.NoArgs,
	}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		state, err := d.Load()
		if err != nil {
			return err
		}
		printEnv(cmd.OutOrStdout(), state)
		return nil
	}
	return cmd
}

func printEnv(w io.Writer, state *cluster.State) {
	fmt.Fprintf(w, "export KUBECONFIG=%s\nexport PATH=%s:\"$PATH\"\n", quote(state.Kubeconfig), quote(state.Binaries))
}

// quote makes a shell word of any path.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status --dir DIR",
		Short: "Say which components of the lab run",
		Args:  cobra.NoArgs,
	}
	dir, printResult := dirFlag(cmd), outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		state, err := d.Load()
		if err != nil {
			return err
		}
		return printResult(state, func(w io.Writer) {
			for _, c := range state.Components {
				if c.Running() {
					fmt.Fprintf(w, "%-24s runs as process %d\n", c.Name, c.Process.PID)
				} else {
					fmt.Fprintf(w, "%-24s does not run; its log is %s\n", c.Name, c.Log)
				}
			}
		})
	}
	return cmd
}

func stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop COMPONENT --dir DIR",
		Short: "Stop one component, kube-apiserver for example, and leave its data",
		Args:  cobra.ExactArgs(1),
	}
	dir := dirFlag(cmd)
	// The API server waits ten seconds and more for its clients to go; a test that takes it away need not.
	grace := cmd.Flags().Duration("grace", 2*time.Second, "how long the component may take to end before it is killed")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		return cluster.Stop(d, args[0], *grace)
	}
	return cmd
}

func startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start COMPONENT --dir DIR",
		Short: "Start a stopped component again, on the same port with the same data",
		Args:  cobra.ExactArgs(1),
	}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		return cluster.Start(cmd.Context(), d, args[0])
	}
	return cmd
}
