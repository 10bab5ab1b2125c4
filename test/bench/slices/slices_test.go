// SPDX-License-Identifier: Apache-2.0

// Package slices counts what tenants cost the API server in ResourceSlice writes: each write wakes every scheduler, so
// pods that come and go must not rewrite them.
package slices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	nodes       = 2
	gpusPerNode = 8
	// wave is how many pods run at once, waves how often they are replaced.
	wave, waves = 200, 5
	// creators is how many pods are created or deleted at once.
	creators = 8
	// debounce is the least time between two changes of a node's order of devices.
	debounce = 30 * time.Second
)

// BenchmarkThousandPods runs 1,000 pods through shared GPUs and reports the slice writes they caused.
func BenchmarkThousandPods(b *testing.B) {
	for b.Loop() {
		thousandPods(b)
	}
}

func thousandPods(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	s := bringUp(ctx, b)
	writes, err := countSliceWrites(ctx, s)
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	for i := range waves {
		if err := runWave(ctx, s, i); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(begin)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took.Seconds(), "s/1000pods")
	b.ReportMetric(float64(writes.Load()), "slice-writes/1000pods")
	// One change of order rewrites at most every slice of a node, and is not repeated within the debounce.
	bound := int64(nodes * gpusPerNode * (int(took/debounce) + 1))
	b.ReportMetric(float64(bound), "bound")
	if writes.Load() > bound {
		b.Errorf("%d slice writes, at most %d are due in %s", writes.Load(), bound, took)
	}
}

func bringUp(ctx context.Context, b *testing.B) *stack.Stack {
	b.Helper()
	progress, err := os.Create(filepath.Join(b.TempDir(), "lab.log"))
	if err != nil {
		b.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sluice-slices-")
	if err != nil {
		b.Fatal(err)
	}
	s, err := stack.Up(ctx, stack.Options{Dir: filepath.Join(dir, "lab"), Log: progress})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(s.Down(context.WithoutCancel(ctx)), os.RemoveAll(dir), progress.Close()); err != nil {
			b.Error(err)
		}
	})
	for i := range nodes {
		n := stack.Node{Name: fmt.Sprintf("node-%d", i), Pool: "bench", Board: "h100-80gb", GPUs: gpusPerNode}
		if err := s.AddNode(ctx, n); err != nil {
			b.Fatal(err)
		}
	}
	pool := builders.MakePool("bench").Obj()
	pool.Spec.Sharing.MaxTenantsPerDevice = 32
	if err := s.Client.Create(ctx, pool); err != nil {
		b.Fatal(err)
	}
	if err := stack.Poll(ctx, "the pool is ready", func(ctx context.Context) (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		return meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.PoolReady), err
	}); err != nil {
		b.Fatal(err)
	}
	return s
}

// countSliceWrites counts every change of a slice from now on.
func countSliceWrites(ctx context.Context, s *stack.Stack) (*atomic.Int64, error) {
	scheme, err := stack.Scheme()
	if err != nil {
		return nil, err
	}
	watcher, err := client.NewWithWatch(s.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a watching client: %w", err)
	}
	var now resourceapi.ResourceSliceList
	if err := s.Client.List(ctx, &now); err != nil {
		return nil, fmt.Errorf("listing the slices: %w", err)
	}
	w, err := watcher.Watch(ctx, &resourceapi.ResourceSliceList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion},
	})
	if err != nil {
		return nil, fmt.Errorf("watching the slices: %w", err)
	}
	writes := &atomic.Int64{}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if event.Type == watch.Added || event.Type == watch.Modified || event.Type == watch.Deleted {
				writes.Add(1)
			}
		}
	}()
	return writes, nil
}

// runWave runs the pods of one wave until all run, and removes them.
func runWave(ctx context.Context, s *stack.Stack, number int) error {
	pods := make([]*corev1.Pod, wave)
	for i := range pods {
		pods[i] = builders.MakePod(fmt.Sprintf("w%d-%d", number, i)).Pool("bench").Memory("1Gi").Obj()
	}
	if err := each(ctx, pods, func(ctx context.Context, p *corev1.Pod) error { return s.Client.Create(ctx, p) }); err != nil {
		return fmt.Errorf("creating pods: %w", err)
	}
	if err := stack.Poll(ctx, "the wave runs", func(ctx context.Context) (bool, error) {
		var list corev1.PodList
		if err := s.Client.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return false, err
		}
		running := 0
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == wave, nil
	}); err != nil {
		return err
	}
	if err := each(ctx, pods, func(ctx context.Context, p *corev1.Pod) error { return s.Client.Delete(ctx, p) }); err != nil {
		return fmt.Errorf("deleting pods: %w", err)
	}
	return stack.Poll(ctx, "the wave is gone", func(ctx context.Context) (bool, error) {
		var list corev1.PodList
		err := s.Client.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))
		return len(list.Items) == 0, err
	})
}

func each(ctx context.Context, pods []*corev1.Pod, do func(context.Context, *corev1.Pod) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for _, p := range pods {
		group.Go(func() error { return do(ctx, p) })
	}
	return group.Wait()
}
