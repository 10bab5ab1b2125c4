// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestAQuotaMadeLate(t *testing.T) {
	s := newScene(t)
	pods := []*corev1.Pod{limits("a", "2Gi"), limits("b", "2Gi"), limits("c", "2Gi")}
	for _, pod := range pods {
		s.create(pod)
	}
	s.scheduled(pods...)
	q := builders.MakeQuota(s.namespace, "late").Hard(v1alpha1.QuotaGPUs, "2").Hard(v1alpha1.QuotaMemory, "8Gi").Obj()
	s.quota(q)
	s.used(q, quota.Amounts{"gpus": 3, "memory": 6 * gibi})
	s.exceeded(q, metav1.ConditionTrue, v1alpha1.ReasonAboveHard, "gpus")
	s.refused(s.tenant(), limits("d", "1Gi"), "gpus", "late", "3", "2")
	s.allocated(3)
	for _, pod := range pods[:2] {
		if err := admin.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	s.used(q, quota.Amounts{"gpus": 1, "memory": 2 * gibi})
	s.exceeded(q, metav1.ConditionFalse, v1alpha1.ReasonWithinHard, "")
	fits := limits("e", "1Gi")
	s.create(fits)
	s.scheduled(fits)
}

func TestAQuotaLoweredBelowItsUse(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaMemory, "4Gi").Obj()
	s.quota(q)
	first, second := limits("a", "2Gi"), limits("b", "2Gi")
	s.create(first, second)
	s.scheduled(first, second)
	s.lower(q, "1Gi")
	s.exceeded(q, metav1.ConditionTrue, v1alpha1.ReasonAboveHard, "memory")
	if ready := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.QuotaReady); ready == nil || ready.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %v, want True: what is exceeded is held too", ready)
	}
	s.allocated(2)
	s.refused(s.tenant(), limits("c", "1Gi"), "memory", "tenant")
}

// lower sets the quota's memory.
func (s scene) lower(q *v1alpha1.GPUQuota, memory string) {
	s.Helper()
	s.wait("the quota is lowered", func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return false, err
		}
		q.Spec.Hard[v1alpha1.QuotaMemory] = v1alpha1.QuotaAmount{Quantity: resource.MustParse(memory)}
		err := admin.Update(ctx, q)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// exceeded waits for the condition Exceeded.
func (s scene) exceeded(q *v1alpha1.GPUQuota, status metav1.ConditionStatus, reason, word string) {
	s.Helper()
	s.wait(fmt.Sprintf("Exceeded of quota %s is %s", q.Name, status), func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return false, err
		}
		c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.QuotaExceeded)
		return c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, word), nil
	})
}

// TestADryRunChargesNothing, and is answered as the real thing would be.
func TestADryRunChargesNothing(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaMemory, "4Gi").Obj()
	s.quota(q)
	claim, other := share("claim", "3Gi"), share("other", "2Gi")
	s.create(claim, other)
	for range 3 {
		if err := s.allocate(claim, "3Gi", &client.SubResourceUpdateOptions{
			UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.allocate(other, "2Gi"); err != nil {
		t.Errorf("a dry run took what there is: %v", err)
	}
	if err := s.allocate(claim, "3Gi", &client.SubResourceUpdateOptions{
		UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}},
	}); !apierrors.IsForbidden(err) {
		t.Errorf("a dry run of what does not fit: got %v, want Forbidden", err)
	}
	s.used(q, quota.Amounts{"memory": 2 * gibi})
}

// TestANamespaceMadeAgain starts at its true use, whatever the namespace of that name held before.
func TestANamespaceMadeAgain(t *testing.T) {
	s := newScene(t)
	for round := range 3 {
		q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "2").Obj()
		var pods []*corev1.Pod
		if round%2 == 1 { // what runs before the quota is there is counted too
			pods = append(pods, limits("early", "1Gi"))
			s.create(pods[0])
			s.scheduled(pods[0])
		}
		s.quota(q)
		s.used(q, quota.Amounts{"gpus": int64(len(pods))})
		for len(pods) < 2 {
			pod := limits(fmt.Sprintf("pod-%d", len(pods)), "1Gi")
			s.create(pod)
			pods = append(pods, pod)
		}
		s.scheduled(pods...)
		s.used(q, quota.Amounts{"gpus": 2})
		s.refused(admin, limits("more", "1Gi"), "gpus", "tenant")
		s.again()
	}
}

// again deletes the namespace with all that it holds, and makes it anew.
func (s scene) again() {
	s.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := admin.Delete(s.Context(), namespace); err != nil {
		s.Fatal(err)
	}
	s.wait("the namespace is gone", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err := admin.Create(s.Context(), namespace); err != nil {
		s.Fatal(err)
	}
}

func TestAQuotaInUseIsNotDeleted(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "2").Obj()
	s.quota(q)
	pod := limits("pod", "1Gi")
	s.create(pod)
	s.scheduled(pod)
	keeper := s.account("keeper", s.role("keeper", "get", "delete", "deletecollection"))
	all := func() error {
		return keeper.DeleteAllOf(t.Context(), &v1alpha1.GPUQuota{}, client.InNamespace(s.namespace))
	}
	if err := keeper.Delete(t.Context(), q.DeepCopy()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "delete-in-use") {
		t.Errorf("deleting a quota in use: got %v, want Forbidden that names the verb", err)
	}
	if err := all(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("deleting all quotas, of which one is in use: got %v, want Forbidden that says so", err)
	}
	s.used(q, quota.Amounts{"gpus": 1})
	s.release()
	s.used(q, quota.Amounts{"gpus": 0})
	if err := all(); err != nil {
		t.Errorf("deleting all quotas, none of which is in use: %v", err)
	}
}

func TestAQuotaInUseIsDeletedByWhoMay(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "1").Obj()
	s.quota(q)
	pod := limits("pod", "1Gi")
	s.create(pod)
	s.scheduled(pod)
	if err := s.account("chief", "sluice-admin").Delete(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	second := limits("second", "1Gi")
	s.admitted(second)
	s.scheduled(second)
}

func TestAPoolThatRequiresAQuota(t *testing.T) {
	s := newScene(t)
	tenant := s.tenant()
	s.refused(tenant, builders.MakePod("pod").Pool("paid").Memory("1Gi").Obj(), "paid", "GPUQuota")
	s.slyHeld("paid", "paid", "GPUQuota")
	q := builders.MakeQuota(s.namespace, "elsewhere").Hard(v1alpha1.QuotaGPUs, "8").Pools("shared").Obj()
	s.quota(q)
	s.refused(tenant, builders.MakePod("pod").Pool("paid").Memory("1Gi").Obj(), "paid", "GPUQuota")
	s.quota(builders.MakeQuota(s.namespace, "counts").Hard(v1alpha1.QuotaMemory, "4Gi").Pools("paid", "shared").Obj())
	pod := builders.MakePod("paying").Pool("paid").Memory("1Gi").Obj()
	s.as(tenant, pod)
	s.scheduled(pod)
}

func TestAPoolForChosenNamespaces(t *testing.T) {
	s := newScene(t, "tier", "iron")
	s.refused(s.tenant(), builders.MakePod("pod").Pool("gold").Memory("1Gi").Obj(), "gold", "namespaceSelector")
	s.slyHeld("gold", "gold", "namespaceSelector")
	chosen := newScene(t, "tier", "gold")
	pod := builders.MakePod("pod").Pool("gold").Memory("1Gi").Obj()
	chosen.as(chosen.tenant(), pod)
	chosen.scheduled(pod)
}

// slyHeld reaches for a pool's devices through a class of somebody else, which no early check can tell.
func (s scene) slyHeld(pool string, words ...string) {
	s.Helper()
	request := exactly(s.foreign("sly", resourceapi.DeviceClassSpec{}), "1Gi")
	request.Selectors = ofPool(pool)
	pod := uses("sly", "sly")
	s.create(asksFor("sly", resourceapi.DeviceRequest{Exactly: request}), pod)
	s.held(pod, words...)
}

func TestADeploymentSaysWhyInAnEvent(t *testing.T) {
	s := newScene(t)
	s.quota(builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaMemory, "4Gi").Obj())
	template := limits("", "8Gi")
	labels := map[string]string{"app": "big"}
	s.as(s.tenant(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "big"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	})
	s.wait("an event of the ReplicaSet has the sentence", func(ctx context.Context) (bool, error) {
		var events corev1.EventList
		if err := admin.List(ctx, &events, client.InNamespace(s.namespace)); err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ReplicaSet" && e.Reason == "FailedCreate" &&
				contains(e.Message, []string{"memory: 8Gi asked", "4Gi", "tenant"}) {
				return true, nil
			}
		}
		return false, nil
	})
}

func TestOneClaimIsBounded(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaMemory, "20Gi").
		PerClaim(v1alpha1.QuotaMemory, "3Gi", "2Gi", "4Gi").PerClaim(v1alpha1.QuotaCompute, "10", "", "").Obj()
	s.quota(q)
	tenant := s.tenant()
	s.refused(tenant, limits("small", "1Gi"), "memory", "1Gi", "2Gi", "tenant")
	s.refused(tenant, limits("large", "5Gi"), "memory", "5Gi", "4Gi", "tenant")
	s.refused(tenant, share("large", "5Gi"), "memory", "5Gi", "4Gi", "tenant")
	plain := builders.MakePod("plain").Limit(v1alpha1.ResourceGPU, "1").Obj()
	s.as(tenant, plain)
	s.scheduled(plain)
	s.used(q, quota.Amounts{"memory": 3 * gibi})
	allocation := s.allocated(1)[0].Status.Allocation
	compute := allocation.Devices.Results[0].ConsumedCapacity[v1alpha1.CapacityCompute]
	if compute.Value() != 10 {
		t.Errorf("the share has %s of compute, want the default 10", compute.String())
	}
	request := exactly(s.foreign("sly", resourceapi.DeviceClassSpec{}), "5Gi")
	request.Selectors = ofPool("shared")
	pod := uses("sly", "sly")
	s.create(asksFor("sly", resourceapi.DeviceRequest{Exactly: request}), pod)
	s.held(pod, "memory", "5Gi", "4Gi")
}

// TestAQuotaThatIsBeingDeletedHolds until it is gone.
func TestAQuotaThatIsBeingDeletedHolds(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "1").Obj()
	q.Finalizers = []string{"example.com/keep"}
	s.quota(q)
	pod := limits("pod", "1Gi")
	s.create(pod)
	s.scheduled(pod)
	if err := admin.Delete(t.Context(), q.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	s.refused(admin, limits("more", "1Gi"), "gpus", "tenant")
	claim := share("sly", "1Gi")
	s.as(s.impersonated("system:serviceaccount:kube-system:resource-claim-controller"), claim)
	if err := s.allocate(claim, "1Gi"); !apierrors.IsForbidden(err) {
		t.Errorf("allocating more: got %v, want Forbidden", err)
	}
	s.wait("the finalizer is gone", func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return false, err
		}
		q.Finalizers = nil
		err := admin.Update(ctx, q)
		return err == nil, ignoreConflict(err)
	})
	s.wait("what is allocated is not held any more", func(context.Context) (bool, error) {
		err := s.allocate(claim, "1Gi")
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// TestANamespaceThatEnds gets nothing more: its quotas may go before its pods do.
func TestANamespaceThatEnds(t *testing.T) {
	s := newScene(t)
	claim := share("claim", "1Gi")
	claim.Finalizers = []string{"example.com/keep"}
	s.create(claim)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s.wait("the claim is being deleted", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return !claim.DeletionTimestamp.IsZero(), err
	})
	if err := s.allocate(claim, "1Gi"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "being deleted") {
		t.Errorf("allocating in a namespace that ends: got %v, want Forbidden", err)
	}
	s.wait("the finalizer is gone", func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return false, err
		}
		claim.Finalizers = nil
		err := admin.Update(ctx, claim)
		return err == nil, ignoreConflict(err)
	})
}
