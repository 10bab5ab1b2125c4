// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-gpu/sluice/test/lab/kubelet"
)

// kubeletCommand is what a node's minimal kubelet runs as.
func kubeletCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubelet", Short: "Run the minimal kubelet of one node (node up does)", Hidden: true, Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o := kubelet.Options{Now: time.Now}
	flags.StringVar(&o.Node, "node", "", "name of the node")
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the node")
	flags.StringVar(&o.Registry, "registry", "", "directory in which drivers announce themselves")
	flags.StringVar(&o.CDI, "cdi", "", "directory of CDI specifications")
	flags.StringVar(&o.State, "state", "", "directory of the kubelet's files")
	for _, name := range []string{"node", "kubeconfig", "registry", "cdi", "state"} {
		_ = cmd.MarkFlagRequired(name)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
		if err != nil {
			return fmt.Errorf("reading the kubeconfig: %w", err)
		}
		config.QPS, config.Burst, config.UserAgent = 100, 200, "sluice-lab-kubelet"
		if o.Client, err = kubernetes.NewForConfig(config); err != nil {
			return fmt.Errorf("making a client: %w", err)
		}
		o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
		return kubelet.Run(cmd.Context(), o)
	}
	return cmd
}
