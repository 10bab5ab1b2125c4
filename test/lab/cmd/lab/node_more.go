// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/node"
)

func nodeListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list --dir DIR", Short: "List the lab's nodes", Args: cobra.NoArgs}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		names, err := node.Names(d)
		for _, name := range names {
			fmt.Fprintln(cmd.OutOrStdout(), name)
		}
		return err
	}
	return cmd
}

func nodeStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status --dir DIR --name NAME", Short: "Say where a node's files are and which of its processes run", Args: cobra.NoArgs,
	}
	args, printResult := nodeFlags(cmd), outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		status, err := node.Describe(cmd.Context(), dir, name)
		if err != nil {
			return err
		}
		return printResult(status, func(w io.Writer) {
			for _, which := range []string{node.Kubelet, node.Agent} {
				switch process, ok := status.Processes[which]; {
				case !ok:
				case process.Running:
					fmt.Fprintf(w, "%-8s runs as process %d\n", which, process.PID)
				default:
					fmt.Fprintf(w, "%-8s does not run (%s)\n", which, process.LastExit)
				}
			}
			for _, driver := range status.Drivers {
				fmt.Fprintf(w, "driver   %s, registered %s\n", driver.Name, driver.Since.Format("15:04:05"))
			}
			fmt.Fprintf(w, "files    %s\nlogs     %s\n", status.Paths.Dir, status.Paths.Logs)
		})
	}
	return cmd
}

func nodeRebootCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "reboot --dir DIR --name NAME", Short: "Cut a node off and start it again, as after a boot", Args: cobra.NoArgs}
	args, wait := nodeFlags(cmd), waitFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return node.Reboot(cmd.Context(), dir, name, *wait)
	}
	return cmd
}

// superviseCommand is what a node's supervisor runs as.
func superviseCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "supervise", Hidden: true, Args: cobra.NoArgs}
	args := nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return node.Supervise(cmd.Context(), dir, name)
	}
	return cmd
}
