// SPDX-License-Identifier: Apache-2.0

// Package escapes_test has root of containers get past Sluice's library, on a machine with kubelet, containerd and one GPU that
// all tenants share: who does is found, and treated as the pool says, and the others go on. Only the GPU is fake.
package escapes_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// node is the machine, and the pool of its GPU.
const node = "node"

var lab *machine.Lab

func TestMain(m *testing.M) {
	os.Exit(machine.Main(m, &lab, machine.Shared{Timeout: 20 * time.Minute, Furnish: furnish}))
}

func furnish(ctx context.Context, l *machine.Lab) error {
	images, err := machine.Images()
	if err != nil {
		return fmt.Errorf("furnishing the lab: %w", err)
	}
	err = l.Add(ctx, machine.Machine{
		Name: node, Board: "h100-80gb", GPUs: 1, Images: images,
		Labels: map[string]string{machine.PresentLabel: "true", builders.PoolNodeLabel: node},
	})
	if err != nil {
		return fmt.Errorf("adding a machine: %w", err)
	}
	if err := l.Install(ctx, stack.Path("charts", "sluice")); err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	pool := builders.MakePool(node).Nodes(node).MaxTenants(32).Default().Obj()
	if err := l.Client.Create(ctx, pool); err != nil {
		return fmt.Errorf("making a pool: %w", err)
	}
	return nil
}
