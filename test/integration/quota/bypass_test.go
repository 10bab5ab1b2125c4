// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

// TestWaysAround tries, as a tenant with the role edit, to hold more than 4Gi of memory or to hold it unseen. Each way
// ends with 4Gi in use, and one more gibibyte must not be had by anybody.
func TestWaysAround(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		way  func(scene, client.Client)
	}{
		{name: "another pod names a pod's claim and outlives it", way: outlive},
		{name: "a claim has the ownerReference of a pod that is not its own", way: forgedOwner},
		{name: "an allocated claim is given to another owner", way: newOwner},
		{name: "a pod uses the claim of a pod that a gate holds", way: gatedOwner},
		{name: "a claim says that it was made for an extended resource", way: forgedAnnotation},
		{name: "a claim reaches the devices through a class without selectors", way: bareClass},
		{name: "a claim asks beside its share for access as an administrator", way: asAdministrator},
		{name: "claims are made before anything uses them", way: claimsFirst},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, resourceapi.DRAAdminNamespaceLabelKey, "true")
			q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaMemory, "4Gi").Obj()
			s.quota(q)
			tc.way(s, s.tenant())
			s.used(q, quota.Amounts{v1alpha1.QuotaMemory: 4 * gibi})
			s.nothingMore()
		})
	}
}

// nothingMore tries to get one gibibyte more: as a pod, as a claim that is written by hand, and as an allocation that
// nobody could refuse early.
func (s scene) nothingMore() {
	s.Helper()
	late := s.account("late", "edit")
	s.refused(late, limits("more", "1Gi"), "memory", "1Gi", "4Gi", "tenant")
	s.refused(late, share("more", "1Gi"), "memory", "1Gi", "4Gi", "tenant")
	claim := share("sly", "1Gi")
	s.as(s.impersonated("system:serviceaccount:kube-system:resource-claim-controller"), claim)
	err := s.allocate(claim, "1Gi")
	if !apierrors.IsForbidden(err) || !contains(err.Error(), []string{"memory", "1Gi", "4Gi", "tenant"}) {
		s.Errorf("allocating one gibibyte more: got %v, want Forbidden with the numbers", err)
	}
}

// allocate does what the scheduler does: it writes an allocation of a share into a claim.
func (s scene) allocate(claim *resourceapi.ResourceClaim, memory string, options ...client.SubResourceUpdateOption) error {
	s.Helper()
	allocated := claim.DeepCopy()
	allocated.Status.Allocation = allocationOf(memory)
	return admin.Status().Update(s.Context(), allocated, options...) //nolint:wrapcheck // it is what the test is about
}

// allocationOf is a share of so much memory, as the scheduler writes it.
func allocationOf(memory string) *resourceapi.AllocationResult {
	return &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "gpu", Driver: v1alpha1.DriverName, Pool: "n-shared", Device: "gpu-0", ShareID: ptr.To(uuid.NewUUID()),
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				v1alpha1.CapacityMemory: resource.MustParse(memory), v1alpha1.CapacityCompute: resource.MustParse("0"),
				v1alpha1.CapacitySlots: resource.MustParse("1"),
			},
		}},
	}}
}

// ofPool selects the devices of a pool by what is published of them, whatever the class says.
func ofPool(pool string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.driver == "gpu.sluice.dev" && device.attributes["gpu.sluice.dev"].pool == "` + pool + `"`,
	}}}
}

func outlive(s scene, tenant client.Client) {
	owner := limits("owner", "4Gi")
	s.as(tenant, owner)
	s.scheduled(owner)
	second := uses("second", s.madeFor(owner))
	s.as(tenant, second)
	s.scheduled(second)
	if err := tenant.Delete(s.Context(), owner); err != nil {
		s.Fatal(err)
	}
	s.wait("the owner is gone", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(owner), &corev1.Pod{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func forgedOwner(s scene, tenant client.Client) {
	other := builders.MakePod("other").Obj()
	s.as(tenant, other)
	claim := share("claim", "4Gi")
	claim.OwnerReferences = ownedBy(other)
	claim.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: "gpu"}
	pod := uses("pod", "claim")
	s.as(tenant, claim, pod)
	s.scheduled(pod)
}

func newOwner(s scene, tenant client.Client) {
	claim, pod, other := share("claim", "4Gi"), uses("pod", "claim"), builders.MakePod("other").Obj()
	s.as(tenant, claim, pod, other)
	s.scheduled(pod)
	fresh := &resourceapi.ResourceClaim{}
	if err := tenant.Get(s.Context(), client.ObjectKeyFromObject(claim), fresh); err != nil {
		s.Fatal(err)
	}
	changed := fresh.DeepCopy()
	changed.OwnerReferences = ownedBy(other)
	if err := tenant.Patch(s.Context(), changed, client.MergeFrom(fresh)); err != nil {
		s.Fatalf("giving the claim to another owner: %v", err)
	}
}

func ownedBy(pod *corev1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true),
	}}
}

func gatedOwner(s scene, tenant client.Client) {
	gated := limits("gated", "4Gi")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	s.as(tenant, gated)
	user := uses("user", s.madeFor(gated))
	s.as(tenant, user)
	s.scheduled(user)
}

func forgedAnnotation(s scene, tenant client.Client) {
	claim, pod := share("claim", "4Gi"), uses("pod", "claim")
	claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	s.as(tenant, claim, pod)
	s.scheduled(pod)
}

func bareClass(s scene, tenant client.Client) {
	class := s.foreign("bare", resourceapi.DeviceClassSpec{})
	claim := asksFor("claim", resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, Capacity: capacity("4Gi"), Selectors: ofPool("shared"),
	}})
	pod := uses("pod", "claim")
	s.as(tenant, claim, pod)
	s.scheduled(pod)
}

func asAdministrator(s scene, tenant client.Client) {
	claim, pod := share("claim", "4Gi"), uses("pod", "claim")
	claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
		Name: "watch", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "shared.sluice.dev", AdminAccess: ptr.To(true)},
	})
	s.as(tenant, claim, pod)
	s.scheduled(pod)
}

// claimsFirst makes claims for twice as much while nothing is held: they cost nothing, and only one is allocated.
func claimsFirst(s scene, tenant client.Client) {
	s.as(tenant, share("one", "4Gi"), share("two", "4Gi"))
	s.as(tenant, uses("pod-1", "one"), uses("pod-2", "two"))
	s.allocated(1)
}

// TestWhatATenantMayNot tries what the API server itself has to refuse to the role edit.
func TestWhatATenantMayNot(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaMemory, "4Gi").Obj()
	s.quota(q)
	tenant := s.tenant()
	pod := limits("pod", "2Gi")
	s.as(tenant, pod)
	s.scheduled(pod)
	claim := s.allocated(1)[0]
	higher := q.DeepCopy()
	higher.Spec.Hard[v1alpha1.QuotaMemory] = v1alpha1.QuotaAmount{Quantity: resource.MustParse("8Gi")}
	emptied := claim.DeepCopy()
	emptied.Status = resourceapi.ResourceClaimStatus{}
	ledger := &v1alpha1.GPULedger{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerNamespacePrefix + s.namespace}}
	for _, tc := range []struct {
		name string
		try  func(context.Context) error
	}{
		{name: "raise the quota", try: func(ctx context.Context) error { return tenant.Update(ctx, higher) }},
		{name: "write the quota's status", try: func(ctx context.Context) error { return tenant.Status().Update(ctx, q.DeepCopy()) }},
		{name: "delete the quota", try: func(ctx context.Context) error { return tenant.Delete(ctx, q.DeepCopy()) }},
		{name: "make a quota", try: func(ctx context.Context) error {
			return tenant.Create(ctx, builders.MakeQuota(s.namespace, "more").Hard(v1alpha1.QuotaMemory, "8Gi").Obj())
		}},
		{name: "take an allocation out of a claim", try: func(ctx context.Context) error { return tenant.Status().Update(ctx, emptied) }},
		{name: "read a ledger", try: func(ctx context.Context) error {
			return tenant.Get(ctx, client.ObjectKeyFromObject(ledger), ledger.DeepCopy())
		}},
		{name: "delete a ledger", try: func(ctx context.Context) error { return tenant.Delete(ctx, ledger.DeepCopy()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.try(t.Context()); !apierrors.IsForbidden(err) {
				t.Errorf("got %v, want Forbidden", err)
			}
		})
	}
}

// TestAdministratorsAccess gives nobody a share, and costs nothing.
func TestAdministratorsAccess(t *testing.T) {
	s := newScene(t, resourceapi.DRAAdminNamespaceLabelKey, "true")
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "0").Hard(v1alpha1.QuotaMemory, "0").Obj()
	s.quota(q)
	claim := share("watch", "")
	claim.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
	pod := uses("watch", "watch")
	s.as(s.tenant(), claim, pod)
	s.scheduled(pod)
	s.used(q, quota.Amounts{v1alpha1.QuotaGPUs: 0, v1alpha1.QuotaMemory: 0})
}

func TestAdministratorsAccessIsNotForTenants(t *testing.T) {
	s := newScene(t)
	claim := share("watch", "")
	claim.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
	claim.Namespace = s.namespace
	if err := s.tenant().Create(t.Context(), claim); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want a refusal", err)
	}
}

// TestTheGateStays: only the manager lifts the gate of a pod that waits for the quota.
func TestTheGateStays(t *testing.T) {
	s := newScene(t)
	s.quota(builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaMemory, "4Gi").Queue().Obj())
	tenant := s.tenant()
	first, second := limits("first", "4Gi"), limits("second", "4Gi")
	s.as(tenant, first)
	s.scheduled(first)
	s.as(tenant, second)
	fresh := &corev1.Pod{}
	if err := tenant.Get(t.Context(), client.ObjectKeyFromObject(second), fresh); err != nil {
		t.Fatal(err)
	}
	if len(fresh.Spec.SchedulingGates) != 1 || fresh.Spec.SchedulingGates[0].Name != v1alpha1.QuotaGate {
		t.Fatalf("the pod has the gates %v, want %s", fresh.Spec.SchedulingGates, v1alpha1.QuotaGate)
	}
	lifted := fresh.DeepCopy()
	lifted.Spec.SchedulingGates = nil
	if err := tenant.Patch(t.Context(), lifted, client.MergeFrom(fresh)); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("lifting the gate: got %v, want a refusal", err)
	}
	if err := tenant.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	s.scheduled(second)
}
