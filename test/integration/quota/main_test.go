// SPDX-License-Identifier: Apache-2.0

// Package quota tests that tenants hold what they were given, exactly: on a real API server with the scheduler and the
// controllers of Kubernetes, two replicas of the manager, and tenants with the rights of the built-in role edit. Nodes
// are on paper, since no pod has to run.
package quota

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/paper"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// board is what all nodes have: 81,152 MiB, and seven slices under MIG.
const board = "h100-80gb"

var (
	cluster *stack.Stack
	// admin is the administrator, who can watch.
	admin client.WithWatch
)

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, &cluster, stack.Shared{Timeout: 25 * time.Minute, Options: stack.Options{Managers: 2}, Furnish: furnish}))
}

// furnish makes the pools that the tests use, and their nodes. A label cohort=<name> on a namespace lets it join.
func furnish(ctx context.Context) error {
	scheme, err := stack.Scheme()
	if err != nil {
		return err
	}
	if admin, err = client.NewWithWatch(cluster.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a watching client: %w", err)
	}
	go paper.Keep(ctx, admin)
	for _, pool := range []*v1alpha1.GPUPool{
		builders.MakePool("shared").DefaultMemory("2Gi").MaxTenants(64).Default().Cohort("research", "cohort", "research").Obj(),
		builders.MakePool("whole").Mode(v1alpha1.SharingExclusive).Obj(),
		builders.MakePool("mig").MIG().Obj(),
		builders.MakePool("all").Mode(v1alpha1.SharingExclusive).Obj(),
		builders.MakePool("paid").DefaultMemory("2Gi").RequireQuota().Obj(),
		builders.MakePool("gold").DefaultMemory("2Gi").For("tier", "gold").Obj(),
	} {
		if err := admin.Create(ctx, pool); err != nil {
			return fmt.Errorf("creating pool %s: %w", pool.Name, err)
		}
	}
	for _, node := range []paper.Node{
		{Name: "n-shared", Pool: "shared", Board: board, GPUs: 8},
		{Name: "n-whole", Pool: "whole", Board: board, GPUs: 4},
		{Name: "n-mig", Pool: "mig", Board: board, GPUs: 2},
		{Name: "n-all", Pool: "all", Board: board, GPUs: 2},
		{Name: "n-paid", Pool: "paid", Board: board, GPUs: 1},
		{Name: "n-gold", Pool: "gold", Board: board, GPUs: 1},
	} {
		if err := paper.Add(ctx, admin, node); err != nil {
			return err
		}
	}
	return nil
}
