// SPDX-License-Identifier: Apache-2.0

// Package e2e_test runs Sluice as its users do, from images and chart, on machines with kubelet, containerd and real containers.
// Only the GPUs are fake.
package e2e_test

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

// The machines: one with eight GPUs, and one with a single GPU whose whole it can lose.
const (
	large = "large"
	small = "small"
)

// poolLabel is the label by which pools choose nodes.
const poolLabel = "node-restriction.kubernetes.io/gpu-pool"

var lab *machine.Lab

func TestMain(m *testing.M) {
	os.Exit(machine.Main(m, &lab, machine.Shared{Timeout: 20 * time.Minute, Furnish: furnish}))
}

// furnish adds the machines, installs Sluice from its chart and makes a pool of each machine's GPUs, named like the machine.
func furnish(ctx context.Context, l *machine.Lab) error {
	begin := time.Now()
	images, err := machine.Images()
	if err != nil {
		return fmt.Errorf("furnishing the lab: %w", err)
	}
	for name, gpus := range map[string]int{large: 8, small: 1} {
		err := l.Add(ctx, machine.Machine{
			Name: name, Board: "h100-80gb", GPUs: gpus, Images: images,
			Labels: map[string]string{machine.PresentLabel: "true", poolLabel: name},
		})
		if err != nil {
			return fmt.Errorf("adding a machine: %w", err)
		}
	}
	ready := time.Since(begin)
	if err := l.Install(ctx, stack.Path("charts", "sluice")); err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	for _, pool := range []*builders.Pool{
		builders.MakePool(large).Nodes(large).Overcommit(150, 200).MaxTenants(16).Default(), builders.MakePool(small).Nodes(small).MaxTenants(16),
	} {
		if err := l.Client.Create(ctx, pool.Obj()); err != nil {
			return fmt.Errorf("making a pool: %w", err)
		}
	}
	fmt.Fprintf(os.Stderr, "machines ready after %.1f s, Sluice installed after %.1f s\n", ready.Seconds(), time.Since(begin).Seconds())
	return nil
}
