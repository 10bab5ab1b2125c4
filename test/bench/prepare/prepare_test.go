// SPDX-License-Identifier: Apache-2.0

// Package prepare_test measures how long the node agent takes to prepare a claim, over its real socket.
package prepare_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestMain(m *testing.M) { fakenode.Main(m, agentproc.Clean) }

// target is what Prepare must stay below at the 99th percentile, warm and without creating a MIG instance.
const target = 50 * time.Millisecond

// BenchmarkPrepare prepares and releases shares on a node of eight GPUs on which 64 other shares are prepared. It reports
// the percentiles of Prepare as kubelet sees it: reading the claim from the API server, checkpoint with its syncs, share
// and CDI spec included.
func BenchmarkPrepare(b *testing.B) {
	rig := agentproc.New(b, fakenode.New(b, fakenode.Boards{Board: "h100-80gb", Count: 8}))
	forms := make([]v1alpha1.GPUDecision, 8)
	for i := range forms {
		forms[i] = v1alpha1.GPUDecision{
			Pool: "shared", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware,
			MemoryPercent: 150, ComputePercent: 200, MaxTenants: 16,
		}
	}
	rig.Publish(b, forms...)
	agent := rig.Start(b)
	for i := range 64 {
		if _, err := agent.Prepare(b.Context(), rig.Allocate(fmt.Sprintf("other-%d", i), share(i%8))); err != nil {
			b.Fatal(err)
		}
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		claim := rig.Allocate(fmt.Sprintf("claim-%d", i), share(i%8))
		start := time.Now()
		if _, err := agent.Prepare(b.Context(), claim); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		if err := agent.Unprepare(b.Context(), claim); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100] }
	b.ReportMetric(float64(at(50).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(at(99).Microseconds())/1000, "p99-ms")
	if at(99) > target {
		b.Logf("the 99th percentile is %v, above the target of %v", at(99), target)
	}
}

func share(minor int) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: v1alpha1.DriverName, Pool: agentproc.NodeName, Device: fmt.Sprintf("gpu-%d", minor),
		ShareID: ptr.To(types.UID("share")),
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: resource.MustParse("8Gi"), v1alpha1.CapacityCompute: resource.MustParse("10"),
			v1alpha1.CapacitySlots: resource.MustParse("1"),
		},
	}
}
