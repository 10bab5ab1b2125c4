// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/paper"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	// pool and its nodes: room for far more than any quota here allows.
	pool        = "shared"
	nodes       = 4
	gpusPerNode = 8
	perGPU      = 64
	timeout     = 25 * time.Minute
)

// bench is a cluster with two managers and a pool.
type bench struct {
	*testing.B
	stack *stack.Stack
	admin client.WithWatch
}

func bringUp(ctx context.Context, b *testing.B) bench {
	b.Helper()
	log.SetLogger(logr.Discard())
	// Sockets below it must have short names, which a benchmark's own directory has not.
	dir, err := os.MkdirTemp("", "sluice-quota-bench-")
	if err != nil {
		b.Fatal(err)
	}
	progress, err := os.Create(filepath.Join(dir, "lab.log"))
	if err != nil {
		b.Fatal(err)
	}
	s, err := stack.Up(ctx, stack.Options{Dir: filepath.Join(dir, "lab"), Log: progress, Managers: 2})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if b.Failed() {
			if err := os.CopyFS(filepath.Join(dir, "logs"), os.DirFS(filepath.Join(dir, "lab", "logs"))); err == nil {
				b.Log("logs are in", filepath.Join(dir, "logs"))
			}
		}
		if err := errors.Join(s.Down(context.WithoutCancel(ctx)), progress.Close()); err != nil {
			b.Error(err)
		}
		if !b.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	scheme, err := stack.Scheme()
	if err != nil {
		b.Fatal(err)
	}
	admin, err := client.NewWithWatch(s.Config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	go paper.Keep(ctx, admin)
	made := builders.MakePool(pool).DefaultMemory("2Gi").MaxTenants(perGPU).Default().Cohort("research", "cohort", "research").Obj()
	if err := admin.Create(ctx, made); err != nil {
		b.Fatal(err)
	}
	for i := range nodes {
		n := paper.Node{Name: fmt.Sprintf("node-%d", i), Pool: pool, Board: "h100-80gb", GPUs: gpusPerNode}
		if err := paper.Add(ctx, admin, n); err != nil {
			b.Fatal(err)
		}
	}
	return bench{B: b, stack: s, admin: admin}
}

// namespace makes a namespace with quotas and waits until they are held.
func (b bench) namespace(ctx context.Context, name string, quotas ...*v1alpha1.GPUQuota) {
	b.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"cohort": "research"}}}
	if err := b.admin.Create(ctx, namespace); err != nil {
		b.Fatal(err)
	}
	for _, q := range quotas {
		if err := b.admin.Create(ctx, q); err != nil {
			b.Fatal(err)
		}
	}
	for _, q := range quotas {
		err := stack.Poll(ctx, "quota "+q.Name+" is held", func(ctx context.Context) (bool, error) {
			err := b.admin.Get(ctx, client.ObjectKeyFromObject(q), q)
			return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.QuotaReady), err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// durations are sorted.
type durations []time.Duration

func sorted(d []time.Duration) durations { return slices.Sorted(slices.Values(d)) }

func (d durations) percentile(part float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[min(len(d)-1, int(part*float64(len(d))))]
}

func (d durations) mean() time.Duration {
	if len(d) == 0 {
		return 0
	}
	var sum time.Duration
	for _, one := range d {
		sum += one
	}
	return sum / time.Duration(len(d))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
