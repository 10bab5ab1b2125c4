// SPDX-License-Identifier: Apache-2.0

// Package admission tests what happens to a pod that asks for GPUs before it is scheduled: on a real API server, through
// the real webhook on loopback, with the manager that makes templates and the controllers of Kubernetes that make claims.
// Nodes are objects without a machine, since no pod has to run.
package admission

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

var cluster *stack.Stack

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "sluice-admission-")
	if err != nil {
		return fail(err)
	}
	defer func() {
		if code == 0 {
			_ = os.RemoveAll(dir)
		}
	}()
	cluster, err = stack.Up(ctx, stack.Options{Dir: filepath.Join(dir, "lab"), Log: os.Stderr})
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err := cluster.Down(context.WithoutCancel(ctx)); err != nil {
			code = fail(err)
		}
	}()
	if err := furnish(ctx); err != nil {
		return fail(err)
	}
	if code = m.Run(); code != 0 {
		if err := os.CopyFS(filepath.Join(dir, "logs"), os.DirFS(filepath.Join(dir, "lab", "logs"))); err == nil {
			fmt.Fprintln(os.Stderr, "logs are in", filepath.Join(dir, "logs"))
		}
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// furnish makes the pools that the tests use: shared, the default, of two GPUs; mig; whole; and empty, without a GPU.
func furnish(ctx context.Context) error {
	for _, pool := range []*v1alpha1.GPUPool{
		builders.MakePool("shared").DefaultMemory("8Gi").Default().Obj(), builders.MakePool("mig").MIG().Obj(),
		builders.MakePool("whole").Mode(v1alpha1.SharingExclusive).Obj(), builders.MakePool("empty").Obj(),
		builders.MakePool("emptymig").MIG().Obj(),
	} {
		if err := cluster.Client.Create(ctx, pool); err != nil {
			return fmt.Errorf("creating pool %s: %w", pool.Name, err)
		}
	}
	for _, node := range []nodeFacts{
		{name: "n-shared", pool: "shared", product: "NVIDIA H100 80GB HBM3", memory: "81152Mi", gpus: 2},
		{name: "n-whole", pool: "whole", product: "NVIDIA H100 80GB HBM3", memory: "81152Mi", gpus: 1},
		{name: "n-mig", pool: "mig", product: "NVIDIA A100-SXM4-80GB", memory: "81152Mi", gpus: 2, profiles: []v1alpha1.MIGProfile{
			profile("1g.10gb", "9728Mi", 14), profile("1g.10gb+me", "9728Mi", 14), profile("1g.20gb", "19968Mi", 14),
			profile("2g.20gb", "19968Mi", 28), profile("3g.40gb", "40192Mi", 42), profile("4g.40gb", "40192Mi", 57),
			profile("7g.80gb", "80896Mi", 100),
		}},
	} {
		if err := node.create(ctx); err != nil {
			return err
		}
	}
	return nil
}
