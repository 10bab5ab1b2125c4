// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

const mebi, gibi = 1 << 20, 1 << 30

// form is a way to ask for GPUs.
type form struct {
	name string
	// objects are what a tenant makes; the last is the pod.
	objects func(scene) []client.Object
	// cost is what the allocation costs in the end.
	cost quota.Amounts
}

// TestEveryFormOfRequest asks in every form, once with a quota that allows exactly the cost, and for each amount once
// with a quota that allows one unit less of it.
func TestEveryFormOfRequest(t *testing.T) {
	boards := builders.Boards(t)
	gpu := boards[board]
	small, _ := gpu.Profile("1g.10gb")
	whole := func(n int64) quota.Amounts {
		return quota.Amounts{"gpus": n, "memory": n * (gpu.MemoryBytes / mebi * mebi), "compute": 100 * n}
	}
	instance := quota.Amounts{"mig/1g.10gb": 1, "memory": small.MemoryBytes / mebi * mebi, "compute": int64(small.Compute(gpu.ComputeSlices))}
	for _, tc := range slices.Concat(limitForms(whole, instance), claimForms(whole, instance), foreignForms(whole)) {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			q := builders.MakeQuota(s.namespace, "exact").Obj()
			for name, value := range tc.cost {
				q.Spec.Hard[name] = v1alpha1.QuotaAmount{Quantity: *resource.NewQuantity(value, resource.BinarySI)}
			}
			s.quota(q)
			objects := tc.objects(s)
			s.as(s.tenant(), objects...)
			pod, _ := objects[len(objects)-1].(*corev1.Pod)
			s.scheduled(pod)
			s.used(q, tc.cost)
			s.release()
			s.used(q, tc.cost.Times(0))
			for _, name := range slices.Sorted(maps.Keys(tc.cost)) {
				less := tc.cost[name] - 1
				// One after another: a pod that found the devices taken by one which was then refused would not be tried
				// again soon.
				t.Run(fmt.Sprintf("not with one less of %s", name), func(t *testing.T) { notWith(t, tc, name, less) })
			}
		})
	}
}

// notWith wants the form refused: at creation, or when the scheduler has allocated.
func notWith(t *testing.T, tc form, name string, hard int64) {
	t.Helper()
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "scarce").Obj()
	q.Spec.Hard[name] = v1alpha1.QuotaAmount{Quantity: *resource.NewQuantity(hard, resource.BinarySI)}
	s.quota(q)
	tenant := s.tenant()
	var pod *corev1.Pod
	for _, object := range tc.objects(s) {
		object.SetNamespace(s.namespace)
		if err := tenant.Create(t.Context(), object); err != nil {
			if !apierrors.IsForbidden(err) || !contains(err.Error(), []string{name, "scarce"}) {
				t.Errorf("%T: got %v, want Forbidden with the amount and the quota", object, err)
			}
			return
		}
		pod, _ = object.(*corev1.Pod)
	}
	s.held(pod, name, "scarce")
	// Of several claims, those that fit may have been allocated before one was refused. The scheduler keeps them for the pod.
	var claims resourceapi.ResourceClaimList
	if err := admin.List(t.Context(), &claims, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	got, err := s.allocations(t.Context())
	if err != nil || len(got) > 0 && len(got) == len(claims.Items) {
		t.Errorf("%d of %d claims are allocated (%v), want none, or fewer", len(got), len(claims.Items), err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(q), q); err != nil {
		t.Fatal(err)
	}
	if used := quota.FromAPI(q.Status.Used)[name]; used > hard {
		t.Errorf("%d of %s are used, want at most %d", used, name, hard)
	}
}

func podOnly(build func() *corev1.Pod) func(scene) []client.Object {
	return func(scene) []client.Object { return []client.Object{build()} }
}

// limitForms ask by the limits of a pod's containers.
func limitForms(whole func(int64) quota.Amounts, instance quota.Amounts) []form {
	return []form{
		{
			name: "limits of memory and compute", cost: quota.Amounts{"gpus": 1, "memory": 3 * gibi, "compute": 20},
			objects: podOnly(func() *corev1.Pod { return builders.MakePod("pod").Memory("3Gi").Compute("20").Obj() }),
		},
		{
			name: "a limit of a number of shared GPUs", cost: quota.Amounts{"gpus": 2, "memory": 4 * gibi, "compute": 20},
			objects: podOnly(func() *corev1.Pod {
				return builders.MakePod("pod").Limit(v1alpha1.ResourceGPU, "2").Memory("2Gi").Compute("10").Obj()
			}),
		},
		{
			name: "limits of two containers", cost: quota.Amounts{"gpus": 2, "memory": 3 * gibi},
			objects: podOnly(func() *corev1.Pod {
				return builders.MakePod("pod").Memory("1Gi").Container("second").Memory("2Gi").Obj()
			}),
		},
		{
			name: "a limit of whole GPUs", cost: whole(2),
			objects: podOnly(func() *corev1.Pod {
				return builders.MakePod("pod").Pool("whole").Limit(v1alpha1.ResourceGPU, "2").Obj()
			}),
		},
		{
			name: "a limit of memory in a pool of MIG instances", cost: instance,
			objects: podOnly(func() *corev1.Pod { return builders.MakePod("pod").Pool("mig").Memory("8Gi").Obj() }),
		},
		{
			name: "the extended resource of whole GPUs", cost: whole(1),
			objects: podOnly(func() *corev1.Pod { return builders.MakePod("pod").Limit("nvidia.com/gpu", "1").Obj() }),
		},
		{
			name: "the extended resource of MIG instances", cost: instance,
			objects: podOnly(func() *corev1.Pod { return builders.MakePod("pod").Limit("nvidia.com/mig-1g.10gb", "1").Obj() }),
		},
	}
}

// claimed makes a form of a claim that is written by hand.
func claimed(name string, cost quota.Amounts, requests ...resourceapi.DeviceRequest) form {
	return form{name: name, cost: cost, objects: func(scene) []client.Object {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
		claim.Spec.Devices.Requests = slices.Clone(requests)
		for i := range claim.Spec.Devices.Requests {
			claim.Spec.Devices.Requests[i].Name = fmt.Sprintf("r%d", i)
		}
		return []client.Object{claim, uses("pod", "claim")}
	}}
}

// claimForms ask by claims and templates.
func claimForms(whole func(int64) quota.Amounts, instance quota.Amounts) []form {
	counted := exactly("shared.sluice.dev", "1Gi")
	counted.Count = 3
	all := exactly("all.sluice.dev", "")
	all.AllocationMode = resourceapi.DeviceAllocationModeAll
	missing := resourceapi.DeviceSubRequest{Name: "none", DeviceClassName: "shared.sluice.dev", Selectors: ofPool("nowhere")}
	forms := []form{
		claimed("a claim", quota.Amounts{"gpus": 1, "memory": 3 * gibi}, resourceapi.DeviceRequest{Exactly: exactly("shared.sluice.dev", "3Gi")}),
		claimed("a claim without an amount", quota.Amounts{"gpus": 1, "memory": 2 * gibi}, resourceapi.DeviceRequest{Exactly: exactly("shared.sluice.dev", "")}),
		claimed("a claim below the least share", quota.Amounts{"gpus": 1}, resourceapi.DeviceRequest{Exactly: exactly("shared.sluice.dev", "1Mi")}),
		claimed("a claim of several requests", quota.Amounts{"gpus": 2, "memory": 5 * gibi},
			resourceapi.DeviceRequest{Exactly: exactly("shared.sluice.dev", "2Gi")}, resourceapi.DeviceRequest{Exactly: exactly("shared.sluice.dev", "3Gi")}),
		claimed("a claim with a count", quota.Amounts{"gpus": 3, "memory": 3 * gibi}, resourceapi.DeviceRequest{Exactly: counted}),
		claimed("a claim for a MIG instance", instance, resourceapi.DeviceRequest{Exactly: exactly("mig-1g.10gb.sluice.dev", "")}),
		claimed("the first of alternatives", whole(1), resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "whole", DeviceClassName: "whole.sluice.dev"}, {Name: "share", DeviceClassName: "shared.sluice.dev", Capacity: capacity("2Gi")},
		}}),
		claimed("a later one of alternatives", quota.Amounts{"gpus": 1, "memory": 2 * gibi}, resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{
			missing, {Name: "share", DeviceClassName: "shared.sluice.dev", Capacity: capacity("2Gi")},
		}}),
		claimed("a claim for all of a node", whole(2), resourceapi.DeviceRequest{Exactly: all}),
	}
	return append(forms, form{
		name: "a template that is written by hand", cost: quota.Amounts{"gpus": 1, "memory": 3 * gibi},
		objects: func(scene) []client.Object {
			template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
			template.Spec.Spec = share("", "3Gi").Spec
			return []client.Object{template, builders.MakePod("pod").Claim("by-hand").Obj()}
		},
	}, form{
		name: "two claims of one pod", cost: quota.Amounts{"gpus": 2, "memory": 3 * gibi},
		objects: func(scene) []client.Object {
			return []client.Object{share("one", "1Gi"), share("two", "2Gi"), uses("pod", "one", "two")}
		},
	})
}

// foreignForms reach the devices through classes of somebody else.
func foreignForms(whole func(int64) quota.Amounts) []form {
	return []form{
		{
			name: "a class without selectors", cost: quota.Amounts{"gpus": 1, "memory": 3 * gibi},
			objects: func(s scene) []client.Object {
				request := exactly(s.foreign("bare", resourceapi.DeviceClassSpec{}), "3Gi")
				request.Selectors = ofPool("shared")
				return []client.Object{asksFor("claim", resourceapi.DeviceRequest{Exactly: request}), uses("pod", "claim")}
			},
		},
		{
			name: "a class of somebody else for whole GPUs", cost: whole(1),
			objects: func(s scene) []client.Object {
				class := s.foreign("theirs", resourceapi.DeviceClassSpec{Selectors: ofPool("whole")})
				return []client.Object{asksFor("claim", resourceapi.DeviceRequest{Exactly: exactly(class, "")}), uses("pod", "claim")}
			},
		},
		{
			name: "the extended resource of a class of somebody else", cost: quota.Amounts{"gpus": 1, "memory": 2 * gibi},
			objects: func(s scene) []client.Object {
				name := "example.com/" + s.namespace
				s.foreign("extended", resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To(name), Selectors: ofPool("shared")})
				return []client.Object{builders.MakePod("pod").Limit(name, "1").Obj()}
			},
		},
	}
}
