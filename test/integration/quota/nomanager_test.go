// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// TestWithoutAManager has nothing wait but allocations of Sluice's devices, and deletions of quotas by who may not delete
// those in use.
func TestWithoutAManager(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "4").Obj()
	s.quota(q)
	keeper := s.account("keeper", s.role("keeper", "get", "delete"))
	running := limits("running", "1Gi")
	s.create(running)
	s.scheduled(running)
	held := s.allocated(1)[0]
	ours, theirs, unread := share("ours", "1Gi"), share("theirs", "1Gi"), share("unread", "1Gi")
	s.create(ours, theirs, unread)
	for replica := range 2 {
		s.stop(stack.ManagerName(replica))
	}

	if err := s.store(ours, v1alpha1.DriverName); err == nil || !strings.Contains(err.Error(), "quota.sluice.dev") {
		t.Errorf("an allocation of Sluice's devices: got %v, want it to wait for the judge", err)
	}
	if err := s.store(theirs, "nic.example.com"); err != nil {
		t.Errorf("an allocation of another driver: %v", err)
	}
	unread.Status.Devices = nil
	unread.Labels = map[string]string{"touched": "yes"}
	if err := admin.Update(t.Context(), unread); err != nil {
		t.Errorf("a change of a claim: %v", err)
	}
	held.Status.ReservedFor, held.Status.Allocation = nil, nil
	if err := admin.Status().Update(t.Context(), &held); err != nil {
		t.Errorf("freeing what was allocated: %v", err)
	}
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	s.create(plain, limits("later", "1Gi"), share("written", "1Gi"))
	if err := keeper.Delete(t.Context(), q.DeepCopy()); err == nil || !strings.Contains(err.Error(), "quota-deletions.sluice.dev") {
		t.Errorf("deleting a quota: got %v, want it to wait for the judge", err)
	}
	if err := admin.Delete(t.Context(), q.DeepCopy()); err != nil {
		t.Errorf("deleting a quota by who may delete those in use: %v", err)
	}
}

// stop takes a component away until the test is over.
func (s scene) stop(component string) {
	s.Helper()
	if err := cluster.Stop(s.Context(), component); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := cluster.Start(ctx, component); err != nil {
			s.Error(err)
			return
		}
		err := stack.Poll(ctx, "the webhooks answer", func(ctx context.Context) (bool, error) {
			err := admin.Create(ctx, builders.MakePod("probe").Pool("nowhere").Memory("1Gi").Obj(), client.DryRunAll)
			return apierrors.IsForbidden(err), nil
		})
		if err != nil {
			s.Error(err)
		}
	})
}

// store stores an allocation, as the scheduler does.
func (s scene) store(claim *resourceapi.ResourceClaim, driver string) error {
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: claim.Spec.Devices.Requests[0].Name, Driver: driver, Pool: "node-1", Device: "gpu-0",
		}},
	}}
	return admin.Status().Update(s.Context(), claim)
}
