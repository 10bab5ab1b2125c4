// SPDX-License-Identifier: Apache-2.0

// Command lab runs a Kubernetes control plane of its own on loopback, and simulated GPU nodes or real machines on it.
// Results go to standard output, progress and errors to standard error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

// calls are further programs that the command is when it is called by their names: none, unless the build tag cluster adds them.
var calls map[string]func()

func main() {
	if call, ok := calls[filepath.Base(os.Args[0])]; ok {
		call()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "lab",
		Short:         "Run a Kubernetes control plane on loopback, with simulated GPU nodes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(buildCommand(), upCommand(), downCommand(), envCommand(), statusCommand(),
		stopCommand(), startCommand(), runCommand(), nodeCommand(), kubeletCommand(), machineCommand(), relayCommand(), imageCommand())
	return root
}

// dirFlag adds --dir and returns what it names, made absolute: processes that a lab starts run elsewhere.
func dirFlag(cmd *cobra.Command) func() (cluster.Dir, error) {
	dir := cmd.Flags().String("dir", "", "directory of the lab (required)")
	_ = cmd.MarkFlagRequired("dir")
	return func() (cluster.Dir, error) {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return "", fmt.Errorf("resolving --dir: %w", err)
		}
		return cluster.Dir(abs), nil
	}
}

// outputFlag adds --output and returns the function that prints a result: as JSON, or by the function given.
func outputFlag(cmd *cobra.Command) func(value any, text func(io.Writer)) error {
	output := cmd.Flags().StringP("output", "o", "text", "how the result is printed: text or json")
	return func(value any, text func(io.Writer)) error {
		switch *output {
		case "json":
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(value)
		case "text":
			text(cmd.OutOrStdout())
			return nil
		default:
			return fmt.Errorf("--output is %q, want text or json", *output)
		}
	}
}
