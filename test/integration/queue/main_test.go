// SPDX-License-Identifier: Apache-2.0

// Package queue tests who waits for a quota and in which order, and what is taken back from whom, on a real API server
// with the scheduler and the controllers of Kubernetes and two replicas of the manager. Nodes are on paper; where a
// pod has to end the tests say what kubelet would.
package queue

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/paper"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

var (
	cluster *stack.Stack
	admin   client.WithWatch
)

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, &cluster, stack.Shared{Timeout: 15 * time.Minute, Options: stack.Options{Managers: 2}, Furnish: furnish}))
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
