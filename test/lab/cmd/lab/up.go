// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/machine"
	"github.com/sluice-gpu/sluice/test/lab/node"
)

func buildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the control plane into the cache and print the directory of its programs",
		Long: "Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl as one program into\n" +
			"$XDG_CACHE_HOME/sluice-lab, once a version. With SLUICE_LAB_BIN set, that directory is checked and used as it is.",
		Args: cobra.NoArgs,
	}
	machines := cmd.Flags().Bool("machines", false, "build containerd too, for lab machine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := ensureBinaries(cmd)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), dir)
		if !*machines {
			return nil
		}
		runtime, err := ensureRuntime(cmd)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), runtime)
		return nil
	}
	return cmd
}

func ensureBinaries(cmd *cobra.Command) (string, error) {
	builder, err := binaries.FromEnvironment(os.Getenv("SLUICE_LAB_BIN"), cmd.ErrOrStderr())
	if err != nil {
		return "", err
	}
	return builder.Ensure(cmd.Context())
}

// upResult is what up prints as JSON.
type upResult struct {
	Dir        string  `json:"dir"`
	Kubeconfig string  `json:"kubeconfig"`
	Server     string  `json:"server"`
	Binaries   string  `json:"binaries"`
	Seconds    float64 `json:"seconds"`
}

func upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up --dir DIR",
		Short: "Bring a control plane up; it stays up when the command ends",
		Args:  cobra.NoArgs,
	}
	dir, printResult := dirFlag(cmd), outputFlag(cmd)
	flags := cmd.Flags()
	qps := flags.Int("kube-api-qps", 300, "requests a second that the scheduler and the controller manager may send")
	gates := flags.String("feature-gates", "", "feature gates beyond the defaults, as A=true,B=false")
	extra := flags.StringArray("extra", nil, "further argument of one component, as kube-apiserver=--v=4; may be repeated")
	audit := flags.Bool("audit", false, "log all requests to DIR/logs/audit.log")
	machines := flags.Bool("machines", false, "let machines join: real nodes with networks of their own (lab machine)")
	foreground := flags.Bool("foreground", false, "stay until interrupted, then bring the lab down")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		args, err := parseExtra(*extra)
		if err != nil {
			return err
		}
		bin, err := ensureBinaries(cmd)
		if err != nil {
			return err
		}
		begin := time.Now()
		state, err := cluster.Up(cmd.Context(), cluster.Options{
			Dir: d, Binaries: bin, FeatureGates: *gates, Extra: args, QPS: *qps, Audit: *audit, Machines: *machines,
		})
		if err != nil {
			return fmt.Errorf("bringing the lab up: %w", err)
		}
		if *machines {
			if err := withRelay(cmd, d); err != nil {
				return err
			}
		}
		took := time.Since(begin).Seconds()
		fmt.Fprintf(cmd.ErrOrStderr(), "The control plane is up after %.1f s.\n", took)
		result := upResult{Dir: string(d), Kubeconfig: state.Kubeconfig, Server: state.Server, Binaries: state.Binaries, Seconds: took}
		if err := printResult(result, func(w io.Writer) { printEnv(w, state) }); err != nil {
			return err
		}
		if !*foreground {
			return nil
		}
		<-cmd.Context().Done()
		return takeDown(context.WithoutCancel(cmd.Context()), d, false)
	}
	return cmd
}

// withRelay starts what carries connections to and from machines; a lab that cannot have it comes down again.
func withRelay(cmd *cobra.Command, dir cluster.Dir) error {
	self, err := os.Executable()
	if err == nil {
		err = startRelay(cmd, dir, self)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("starting the relay: %w", err), takeDown(context.WithoutCancel(cmd.Context()), dir, true))
	}
	return nil
}

// parseExtra reads --extra: the component's name, an equals sign, and the argument.
func parseExtra(values []string) (map[string][]string, error) {
	extra := map[string][]string{}
	for _, value := range values {
		name, arg, ok := strings.Cut(value, "=")
		if !ok || !strings.HasPrefix(arg, "-") {
			return nil, fmt.Errorf("--extra is %q, want it as kube-apiserver=--v=4", value)
		}
		switch name {
		case binaries.Etcd, binaries.APIServer, binaries.ControllerManager, binaries.Scheduler:
			extra[name] = append(extra[name], arg)
		default:
			return nil, fmt.Errorf("--extra names %q, which is no component of the lab", name)
		}
	}
	return extra, nil
}

func downCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down --dir DIR",
		Short: "Stop what the lab started, its nodes too, and remove its files",
		Args:  cobra.NoArgs,
	}
	dir := dirFlag(cmd)
	keepLogs := cmd.Flags().Bool("keep-logs", false, "leave DIR/logs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := dir()
		if err != nil {
			return err
		}
		return takeDown(cmd.Context(), d, *keepLogs)
	}
	return cmd
}

// takeDown stops the nodes first, so that none sees its API server vanish; a node that resists does not keep the rest up.
func takeDown(ctx context.Context, dir cluster.Dir, keepLogs bool) error {
	if err := errors.Join(node.StopAll(ctx, dir), machine.StopAll(ctx, dir)); err != nil {
		return errors.Join(fmt.Errorf("stopping the nodes: %w", err), cluster.StopAll(dir))
	}
	if err := cluster.Down(dir, keepLogs); err != nil {
		return fmt.Errorf("bringing the lab down: %w", err)
	}
	return nil
}
