// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/uninstall"
)

// uninstallCommand is the first argument that has the manager take Sluice out of the cluster, and end.
const uninstallCommand = "uninstall"

// bindUninstall are the flags of uninstalling.
func bindUninstall(flags *flag.FlagSet, o *uninstall.Options) {
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of manager and agents; by default $POD_NAMESPACE")
	flags.DurationVar(&o.PoolTime, "pool-timeout", 90*time.Second, "how long the pools may take to go")
	flags.DurationVar(&o.NodeTime, "node-timeout", time.Minute, "how long the agents may take to leave their nodes")
}

// runUninstall takes Sluice out of the cluster.
func runUninstall(ctx context.Context, o uninstall.Options, log logr.Logger) error {
	if o.Namespace == "" {
		return fmt.Errorf("--namespace is not given and POD_NAMESPACE is not set")
	}
	kubeconfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	kubeconfig.UserAgent = "sluice-uninstall"
	scheme, err := controllers.Scheme()
	if err != nil {
		return err
	}
	if o.Client, err = client.New(kubeconfig, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	o.Clock, o.Log = clock.RealClock{}, log
	return uninstall.Run(ctx, o)
}
