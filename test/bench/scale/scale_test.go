// SPDX-License-Identifier: Apache-2.0

// Package scale measures the manager on a large cluster: a real control plane, the real manager, and as many GPUNodes as
// it takes, whose agents do no more than say that they have applied what was decided.
package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/cluster"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	nodes       = 1000
	gpusPerNode = 8
	writers     = 32
	timeout     = 10 * time.Minute
	product     = "NVIDIA H100 80GB HBM3"
)

// BenchmarkPoolEdit measures how long one edit of a pool takes to reach the spec of every GPUNode, and how much memory
// the manager needs.
func BenchmarkPoolEdit(b *testing.B) {
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	defer cancel()
	// Sockets below it must have short names, which a benchmark's own directory has not.
	dir, err := os.MkdirTemp("", "sluice-scale-") //nolint:usetesting // see above
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, err := cluster.Up(ctx, filepath.Join(dir, "lab"), os.Stderr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Down(context.WithoutCancel(ctx)) })

	if err := populate(ctx, c.Client); err != nil {
		b.Fatal(err)
	}
	m := startManager(b, c, dir)
	edits := watchNodes(ctx, b, c)
	pool := &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
	pool.Spec.Overcommit = &v1alpha1.Overcommit{MemoryPercent: 100, ComputePercent: 100}
	start := time.Now()
	if err := c.Client.Create(ctx, pool); err != nil {
		b.Fatal(err)
	}
	edits.wait(ctx, b, 100)
	b.Logf("a new pool reached %d nodes in %s", nodes, time.Since(start).Round(time.Millisecond))

	percent := int32(100)
	for b.Loop() {
		percent = 250 - percent // 150, 100, 150, ...
		base := pool.DeepCopy()
		pool.Spec.Overcommit.MemoryPercent = percent
		if err := c.Client.Patch(ctx, pool, client.MergeFrom(base)); err != nil {
			b.Fatal(err)
		}
		edits.wait(ctx, b, percent)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/edit")
	b.ReportMetric(m.memory(b, "VmRSS"), "RSS-MB")
	b.ReportMetric(m.memory(b, "VmHWM"), "peak-RSS-MB")
	b.ReportMetric(m.cpuSeconds(b), "cpu-s")
}

// populate creates the nodes as their agents would.
func populate(ctx context.Context, c client.Client) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range nodes {
		group.Go(func() error {
			name := fmt.Sprintf("node-%04d", i)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"kubernetes.io/hostname": name, "node-restriction.kubernetes.io/gpu-pool": "bench",
			}}}
			if err := c.Create(ctx, node); err != nil {
				return fmt.Errorf("creating node %s: %w", name, err)
			}
			gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID,
			}}}}
			if err := c.Create(ctx, gpuNode); err != nil {
				return fmt.Errorf("creating GPUNode %s: %w", name, err)
			}
			report(gpuNode)
			return c.Status().Update(ctx, gpuNode)
		})
	}
	return group.Wait()
}

// report fills in what an agent of a node of 8 × H100 says.
func report(n *v1alpha1.GPUNode) {
	forms := map[string]v1alpha1.PublishedForm{}
	for _, d := range n.Decisions() {
		forms[d.UUID] = v1alpha1.PublishedForm{Pool: d.Pool, Partitioning: d.Partitioning, Sharing: d.Sharing, Taint: d.Taint}
	}
	s := &n.Status
	s.ObservedGeneration, s.DriverVersion, s.Products = n.Generation, "580.159.04", "8 × "+product
	s.Summary = fmt.Sprintf("%d/%d", len(forms), gpusPerNode)
	s.GPUs = nil
	for i := range gpusPerNode {
		uuid := fmt.Sprintf("GPU-%s-%d", n.Name, i)
		s.GPUs = append(s.GPUs, v1alpha1.GPUStatus{
			UUID: uuid, Minor: ptr.To(int32(i)), Product: product, Architecture: "Hopper",
			Memory: ptr.To(resource.MustParse("81152Mi")), MIGMode: v1alpha1.MIGDisabled, Tenants: ptr.To[int32](0), Published: forms[uuid],
			Reason: v1alpha1.ReasonPublished,
		})
	}
	s.Profiles = nil
	for i, profile := range []string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} {
		s.Profiles = append(s.Profiles, v1alpha1.MIGProfile{
			Product: product, Name: profile, Memory: ptr.To(resource.MustParse("10Gi")), Compute: int32(14 * (i + 1)),
		})
	}
}

// observer answers for the agents and knows what each node was last told.
type observer struct {
	changed chan struct{}

	mu      sync.Mutex
	percent map[string]int32 // by node; 0 where not every GPU says the same
}

// watchNodes follows the GPUNodes, and lets each node's agent answer as a real one would.
func watchNodes(ctx context.Context, b *testing.B, c *cluster.Cluster) *observer {
	b.Helper()
	informers, err := cache.New(c.Config, cache.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	informer, err := informers.GetInformer(ctx, &v1alpha1.GPUNode{})
	if err != nil {
		b.Fatal(err)
	}
	o := &observer{changed: make(chan struct{}, 1), percent: map[string]int32{}}
	answers := make(chan *v1alpha1.GPUNode, 64*nodes)
	see := func(object any) {
		if n, ok := object.(*v1alpha1.GPUNode); ok {
			o.see(n)
			if n.Status.ObservedGeneration < n.Generation {
				answers <- n.DeepCopy()
			}
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) },
	}); err != nil {
		b.Fatal(err)
	}
	go func() { _ = informers.Start(ctx) }()
	for range writers {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case n := <-answers:
					report(n)
					_ = c.Client.Status().Update(ctx, n) // a conflict means that a newer event is on its way
				}
			}
		}()
	}
	return o
}

func (o *observer) see(n *v1alpha1.GPUNode) {
	var percent int32
	for i, d := range n.Decisions() {
		if i == 0 {
			percent = d.MemoryPercent
		}
		if d.MemoryPercent != percent {
			percent = 0
		}
	}
	o.mu.Lock()
	o.percent[n.Name] = percent
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// wait returns when every GPU of every node is decided with the given percentage.
func (o *observer) wait(ctx context.Context, b *testing.B, percent int32) {
	b.Helper()
	for {
		reached := 0
		o.mu.Lock()
		for _, p := range o.percent {
			if p == percent {
				reached++
			}
		}
		o.mu.Unlock()
		if reached == nodes {
			return
		}
		select {
		case <-ctx.Done():
			b.Fatalf("%d of %d nodes have %d %%: %v", reached, nodes, percent, ctx.Err())
		case <-o.changed:
		}
	}
}

// managerPath is what `make build` makes.
func managerPath() string { return stack.Path("bin", "manager") }
