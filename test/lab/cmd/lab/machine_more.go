// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/machine"
)

func machineListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list --dir DIR", Short: "List the lab's machines", Args: cobra.NoArgs}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		list, err := machine.List(d)
		for _, state := range list {
			fmt.Fprintln(cmd.OutOrStdout(), state.Spec.Name)
		}
		return err
	}
	return cmd
}

func machineStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status --dir DIR --name NAME", Short: "Say where a machine's files are and which of its programs run", Args: cobra.NoArgs,
	}
	args, printResult := nodeFlags(cmd), outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		status, err := machine.Describe(cmd.Context(), dir, name)
		if err != nil {
			return err
		}
		return printResult(status, func(w io.Writer) {
			if !status.Running {
				fmt.Fprintln(w, "does not run")
			}
			for _, which := range []string{machine.Containerd, machine.Kubelet} {
				p := status.Processes[which]
				fmt.Fprintf(w, "%-12s running %-5v starts %d %s\n", which, p.Running, p.Starts, p.LastExit)
			}
			fmt.Fprintf(w, "root         %s\npods         %s\n", status.Root, status.PodNetwork)
		})
	}
	return cmd
}

func machineExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "exec --dir DIR --name NAME -- PROGRAM ARGUMENT...", Args: cobra.MinimumNArgs(1),
		Short: "Run a program of the host's on the machine, in all its namespaces",
	}
	args := nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, command []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		program, err := machine.Command(cmd.Context(), dir, name, command...)
		if err != nil {
			return err
		}
		program.Stdin, program.Stdout, program.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		return program.Run()
	}
	return cmd
}

func machineInitCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "init", Short: "Be a machine's first process (machine up does)", Hidden: true, Args: cobra.NoArgs}
	args := nodeFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return machine.Init(dir, name)
	}
	return cmd
}

func machineSuperviseCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "supervise", Short: "Run a machine's programs (machine up does)", Hidden: true, Args: cobra.NoArgs}
	args := nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return machine.Supervise(cmd.Context(), dir, name)
	}
	return cmd
}

// relayCommand is what carries connections between the API server and machines.
func relayCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "relay", Short: "Carry connections between the API server and machines (up does)", Hidden: true, Args: cobra.NoArgs}
	dir := dirFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		return machine.Relay(cmd.Context(), d)
	}
	return cmd
}

// startRelay starts the relay as a component of the lab.
func startRelay(cmd *cobra.Command, dir cluster.Dir, self string) error {
	return cluster.Run(cmd.Context(), dir, cluster.Component{Name: "relay", Path: self, Args: []string{"relay", "--dir", string(dir)}})
}
