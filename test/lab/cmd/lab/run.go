// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run NAME --dir DIR [--env NAME=VALUE] -- PROGRAM ARGUMENT...",
		Short: "Run a program beside the control plane; stop, start and down treat it as a component",
		Args:  cobra.MinimumNArgs(2),
	}
	dir := dirFlag(cmd)
	env := cmd.Flags().StringArray("env", nil, "variable of the program's environment, as NAME=value; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		path, err := filepath.Abs(args[1])
		if err != nil {
			return fmt.Errorf("resolving %s: %w", args[1], err)
		}
		return cluster.Run(cmd.Context(), d, cluster.Component{Name: args[0], Path: path, Args: args[2:], Env: *env})
	}
	return cmd
}
