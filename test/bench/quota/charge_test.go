// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/witness"
)

const (
	// perSecond is how many claims become allocated in a second, for howLong.
	perSecond = 100
	howLong   = 15 * time.Second
	writers   = 32
)

// BenchmarkCharge allocates claims at a steady rate as the scheduler does, in a namespace without a quota, in one with a
// quota, and in eight of one cohort, and reports how long the API server takes to store an allocation. The time counts
// from when the allocation was due, so that what waits in line is seen.
func BenchmarkCharge(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	defer cancel()
	s := bringUp(ctx, b)
	s.namespace(ctx, "free")
	s.namespace(ctx, "tenant", builders.MakeQuota("tenant", "tenant").Hard(v1alpha1.QuotaGPUs, "100000").Hard(v1alpha1.QuotaMemory, "1Pi").Obj())
	var cohort []string
	for i := range members {
		name := fmt.Sprintf("member-%d", i)
		s.namespace(ctx, name, builders.MakeQuota(name, "tenant").Pools(pool).Cohort("research").
			Hard(v1alpha1.QuotaGPUs, "100000").Guaranteed(v1alpha1.QuotaGPUs, "10000").Obj())
		cohort = append(cohort, name)
	}
	for b.Loop() {
		rows := []string{"| namespaces | allocations | p50 | p99 | longest | put off | ledger writes |"}
		for _, tc := range []struct {
			name       string
			namespaces []string
		}{
			{"without a quota", []string{"free"}}, {"one with a quota", []string{"tenant"}}, {"eight of one cohort", cohort},
		} {
			took, putOff, writes := s.allocate(ctx, tc.namespaces)
			rows = append(rows, fmt.Sprintf("| %s | %d | %s | %s | %s | %d | %d |", tc.name, len(took), milliseconds(took.percentile(0.5)),
				milliseconds(took.percentile(0.99)), milliseconds(took.percentile(1)), putOff, writes))
			b.Log(rows[len(rows)-1])
			s.clear(ctx, tc.namespaces)
		}
		b.Log("\n" + strings.Join(rows, "\n"))
	}
	b.ReportMetric(0, "ns/op")
}

// allocate makes claims, and then writes their allocations at a steady rate. It says how long that took, how many were put
// off by a judge that came to no verdict in time, and how often a ledger was written.
func (b bench) allocate(ctx context.Context, namespaces []string) (took durations, putOff, writes int) {
	b.Helper()
	claims := make([]*resourceapi.ResourceClaim, int(howLong/time.Second)*perSecond)
	making, inner := errgroup.WithContext(ctx)
	making.SetLimit(writers)
	for i := range claims {
		claims[i] = unallocated(fmt.Sprintf("claim-%d", i), namespaces[i%len(namespaces)])
		making.Go(func() error { return b.admin.Create(inner, claims[i]) })
	}
	if err := making.Wait(); err != nil {
		b.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen, err := witness.Watch(watching, b.admin)
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var storing errgroup.Group
	begin := time.Now()
	for i, claim := range claims {
		due := begin.Add(time.Duration(i) * time.Second / perSecond)
		wait(ctx, time.Until(due))
		storing.Go(func() error {
			allocated(claim, i)
			err := b.admin.Status().Update(ctx, claim)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				took = append(took, time.Since(due))
			case strings.Contains(err.Error(), "this allocation is tried again"):
				putOff++
			default:
				return fmt.Errorf("allocating %s: %w", claim.Name, err)
			}
			return nil
		})
	}
	if err := storing.Wait(); err != nil {
		b.Fatal(err)
	}
	return sorted(took), putOff, seen.Judge().LedgerWrites
}

func unallocated(name, namespace string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: pool + ".sluice.dev"},
		}}}},
	}
}

// allocated gives a claim one of the pool's shares.
func allocated(claim *resourceapi.ResourceClaim, i int) {
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "gpu", Driver: v1alpha1.DriverName, ShareID: ptr.To(uuid.NewUUID()),
			Pool: fmt.Sprintf("node-%d", i%nodes), Device: fmt.Sprintf("gpu-%d", i/nodes%gpusPerNode),
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				v1alpha1.CapacityMemory: resource.MustParse("2Gi"), v1alpha1.CapacityCompute: resource.MustParse("0"),
				v1alpha1.CapacitySlots: resource.MustParse("1"),
			},
		}},
	}}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
