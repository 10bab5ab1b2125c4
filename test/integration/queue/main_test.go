// SPDX-License-Identifier: Apache-2.0

// Package queue tests who waits for a quota and in which order, and what is taken back from whom, on a real API server
// with the scheduler and the controllers of Kubernetes and two replicas of the manager. Nodes are on paper; where a
// pod has to end the tests say what kubelet would.
package queue

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/paper"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

var (
	cluster *stack.Stack
	admin   client.WithWatch
)

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "sluice-queue-")
	if err != nil {
		return fail(err)
	}
	defer func() {
		if code == 0 {
			_ = os.RemoveAll(dir)
		}
	}()
	progress, err := os.Create(filepath.Join(dir, "lab.log"))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = progress.Close() }()
	cluster, err = stack.Up(ctx, stack.Options{Dir: filepath.Join(dir, "lab"), Log: progress, Managers: 2})
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

// furnish makes a pool of 16 GPUs, a label cohort=<name> on a namespace letting it join, and two priorities.
func furnish(ctx context.Context) error {
	scheme, err := stack.Scheme()
	if err != nil {
		return err
	}
	if admin, err = client.NewWithWatch(cluster.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a watching client: %w", err)
	}
	pool := builders.MakePool("shared").DefaultMemory("2Gi").MaxTenants(64).Default().
		Cohort("queues", "cohort", "queues").Cohort("refuses", "cohort", "refuses").Cohort("guarded", "cohort", "guarded").Obj()
	for _, object := range []client.Object{
		pool,
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Value: 10},
	} {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	go paper.Keep(ctx, admin)
	return paper.Add(ctx, admin, paper.Node{Name: "n-shared", Pool: "shared", Board: "h100-80gb", GPUs: 16})
}
