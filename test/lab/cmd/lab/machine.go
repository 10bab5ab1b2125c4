// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/machine"
)

func machineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "machine", Short: "Run real nodes on the lab: kubelet, containerd, real containers (needs root)"}
	cmd.AddCommand(
		machineUpCommand(), machineDownCommand(), machineListCommand(), machineStatusCommand(), machineRebootCommand(),
		machineImageCommand(), machineExecCommand(), machineInitCommand(), machineSuperviseCommand(),
	)
	for _, which := range []string{machine.Kubelet, machine.Containerd} {
		cmd.AddCommand(machineKillCommand(which), machineStartCommand(which), machineRestartCommand(which))
	}
	return cmd
}

func machineUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "up --dir DIR --name NAME [flags]", Short: "Start a machine and wait until its node is ready", Args: cobra.NoArgs,
		Long: "Starts a machine: kubelet, containerd and containers in namespaces of their own. Its fake driver lies at\n" +
			machine.DriverRoot + ", and every container finds the fake GPUs at " + machine.GPUStatePath + ".",
	}
	args, printResult := nodeFlags(cmd), outputFlag(cmd)
	spec := machine.Spec{}
	flags := cmd.Flags()
	flags.StringToStringVar(&spec.Labels, "labels", nil, "labels of the Node, as a=b,c=d")
	gpus := gpuFlags(cmd)
	images := flags.StringArray("image", nil, "archive of images to import before the node is ready; may be repeated")
	network := flags.String("network", "bridge", "the machine's network: bridge, a network of its own, or host, the host's")
	flags.StringVar(&spec.NodeIP, "node-ip", "", "the node's address; needed with the host's network")
	flags.BoolVar(&spec.HostPIDs, "host-pids", false, "leave the machine's processes in the host's PID namespace, as a real driver names them")
	flags.IntVar(&spec.StateDisk, "state-disk", 0, "size in MiB of a disk of its own for /var/lib/sluice, to be filled; 0: none")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long the start may take")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		spec.Name = name
		if spec.GPUs, err = gpus(name); err != nil {
			return err
		}
		if spec.HostNetwork, err = hostNetwork(*network, spec.NodeIP); err != nil {
			return err
		}
		if err := machinePrograms(cmd, dir, &spec); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		begin := time.Now()
		state, err := machine.Up(ctx, dir, spec, *images)
		if err != nil {
			return fmt.Errorf("starting the machine %s: %w", name, err)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "The machine %s is ready after %.1f s.\n", name, time.Since(begin).Seconds())
		return printResult(state, func(w io.Writer) { fmt.Fprintln(w, name) })
	}
	return cmd
}

func hostNetwork(network, nodeIP string) (bool, error) {
	switch {
	case network == "bridge":
		return false, nil
	case network != "host":
		return false, fmt.Errorf("--network is %q, want bridge or host", network)
	case nodeIP == "":
		return false, errors.New("--network=host needs --node-ip, one of the host's addresses")
	}
	return true, nil
}

// machinePrograms finds and, where the cache lacks them, builds what a machine runs.
func machinePrograms(cmd *cobra.Command, dir cluster.Dir, spec *machine.Spec) error {
	state, err := dir.Load()
	if err != nil {
		return err
	}
	spec.Programs = state.Binaries
	if spec.Runtime, err = ensureRuntime(cmd); err != nil {
		return err
	}
	spec.Host, err = binaries.FindHostPrograms(spec.Programs)
	return err
}

func ensureRuntime(cmd *cobra.Command) (string, error) {
	builder, err := binaries.FromEnvironment(os.Getenv("SLUICE_LAB_BIN"), cmd.ErrOrStderr())
	if err != nil {
		return "", err
	}
	return builder.EnsureRuntime(cmd.Context())
}

func machineDownCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "down --dir DIR --name NAME", Short: "End a machine and remove it", Args: cobra.NoArgs}
	args := nodeFlags(cmd)
	keep := cmd.Flags().Bool("keep-object", false, "leave the Node object, as when a node vanishes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return machine.Down(cmd.Context(), dir, name, *keep)
	}
	return cmd
}

func machineRebootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reboot --dir DIR --name NAME", Args: cobra.NoArgs,
		Short: "Cut a machine off and boot it: memory is lost, the disk stays, the boot id changes",
	}
	args := nodeFlags(cmd)
	timeout := cmd.Flags().Duration("timeout", 2*time.Minute, "how long it may take")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		return machine.Reboot(ctx, dir, name)
	}
	return cmd
}

func machineKillCommand(which string) *cobra.Command {
	cmd := &cobra.Command{
		Use: which + "-kill --dir DIR --name NAME", Args: cobra.NoArgs,
		Short: fmt.Sprintf("Kill the machine's %s; it stays down until it is started", which),
	}
	args := nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return machine.Kill(cmd.Context(), dir, name, which, syscall.SIGKILL)
	}
	return cmd
}

func machineStartCommand(which string) *cobra.Command {
	cmd := &cobra.Command{
		Use: which + "-start --dir DIR --name NAME", Short: fmt.Sprintf("Start the machine's %s again", which), Args: cobra.NoArgs,
	}
	args := nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		return machine.Start(cmd.Context(), dir, name, which)
	}
	return cmd
}

func machineRestartCommand(which string) *cobra.Command {
	cmd := &cobra.Command{
		Use: which + "-restart --dir DIR --name NAME", Short: fmt.Sprintf("Stop the machine's %s and start it", which), Args: cobra.NoArgs,
	}
	args := nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		if err := machine.Kill(cmd.Context(), dir, name, which, syscall.SIGTERM); err != nil {
			return err
		}
		return machine.Start(cmd.Context(), dir, name, which)
	}
	return cmd
}

func machineImageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image --dir DIR --name NAME ARCHIVE...", Short: "Import archives of images into the machine's store", Args: cobra.MinimumNArgs(1),
	}
	args := nodeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, archives []string) error {
		dir, name, err := args()
		if err != nil {
			return err
		}
		state, err := machine.Load(dir, name)
		if err != nil {
			return err
		}
		for _, archive := range archives {
			path, err := filepath.Abs(archive)
			if err != nil {
				return fmt.Errorf("resolving %s: %w", archive, err)
			}
			if err := machine.Import(cmd.Context(), state, path); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
