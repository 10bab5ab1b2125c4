// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	// bringUp bounds the time until the pools are ready.
	bringUp = 5 * time.Minute
	// settle bounds the time until every tenant runs or is known to wait.
	settle = 3 * time.Minute
)

// nodes are the demo's.
var nodes = []stack.Node{
	{Name: "shared-1", Pool: "shared", Board: "h100-80gb", GPUs: 4},
	{Name: "shared-2", Pool: "shared", Board: "h100-80gb", GPUs: 4},
	{Name: "mig-1", Pool: "mig", Board: "a100-80gb", GPUs: 2, MIG: true},
	{Name: "exclusive-1", Pool: "exclusive", Board: "h100-80gb", GPUs: 1},
}

// up brings the cluster up, runs the tenants and prints what became of them. What it started stays.
func up(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
		return fmt.Errorf("the demo is up already, in %s: `make demo-down` removes it", dir)
	}
	s, err := bring(ctx, dir)
	if err != nil {
		return err
	}
	if err := show(ctx, s); err != nil {
		return errors.Join(err, fmt.Errorf("the cluster is still up, logs are in %s/logs; `make demo-down` removes it", dir))
	}
	fmt.Printf("\nThe cluster stays up. Look around with\n\n  export KUBECONFIG=%s PATH=%s:$PATH\n"+
		"  kubectl get sluice; kubectl get pods -A; kubectl explain gpupool.spec.sharing\n\nand remove it with `make demo-down`.\n",
		s.Kubeconfig, s.Binaries)
	return nil
}

// bring brings up the control plane, the manager, the nodes and the pools; what fails on the way is taken down again.
func bring(ctx context.Context, dir string) (*stack.Stack, error) {
	ctx, cancel := context.WithTimeout(ctx, bringUp)
	defer cancel()
	say("Bringing up a Kubernetes control plane and the manager")
	s, err := stack.Up(ctx, stack.Options{Dir: dir, Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	say("Adding %d nodes with fake GPUs and the real agent", len(nodes))
	err = addNodes(ctx, s)
	if err == nil {
		say("Applying config/samples")
		err = applyPools(ctx, s)
	}
	if err != nil {
		return nil, errors.Join(err, s.Down(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func addNodes(ctx context.Context, s *stack.Stack) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error { return s.AddNode(ctx, n) })
	}
	return group.Wait()
}

// applyPools applies the sample pools and waits until each is ready.
func applyPools(ctx context.Context, s *stack.Stack) error {
	if _, err := s.Kubectl(ctx, "apply", "-k", stack.Path("config", "samples")); err != nil {
		return err
	}
	return stack.Poll(ctx, "the pools are ready", func(ctx context.Context) (bool, error) {
		var pools v1alpha1.GPUPoolList
		if err := s.Client.List(ctx, &pools); err != nil {
			return false, err
		}
		for _, p := range pools.Items {
			if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolReady) {
				return false, nil
			}
		}
		return len(pools.Items) > 0, nil
	})
}

func down(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		fmt.Println("The demo is not up.")
		return nil
	}
	s := stack.At(dir, os.Stderr)
	if err := s.Down(ctx); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// say prints progress.
func say(format string, args ...any) { fmt.Printf("==> "+format+"\n", args...) }
