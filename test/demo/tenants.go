// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// view is one look at the cluster: what the tenants' table is made from.
type view struct {
	pods   []corev1.Pod
	claims map[types.NamespacedName]resourceapi.ResourceClaim
	// devices are the published devices by node and name.
	devices map[string]map[string]resourceapi.Device
}

// grant is one device, or share of one, that a pod holds.
type grant struct {
	node, device, memory, compute string
}

// tenantRows has one row for each device of each pod, and one for a pod that has none.
func tenantRows(v view) [][]string {
	slices.SortFunc(v.pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var rows [][]string
	for i := range v.pods {
		pod := &v.pods[i]
		name, state := pod.Namespace+"/"+pod.Name, string(pod.Status.Phase)
		grants := v.grants(pod)
		if len(grants) == 0 {
			rows = append(rows, []string{name, state, "-", "-", "-", "-", whyWaiting(pod)})
			continue
		}
		for _, g := range grants {
			rows = append(rows, []string{name, state, g.node, g.device, g.memory, g.compute, whyWaiting(pod)})
			name, state = "", ""
		}
	}
	return rows
}

// grants are what the pod's claims were given.
func (v view) grants(pod *corev1.Pod) []grant {
	var grants []grant
	for _, name := range claimNames(pod) {
		claim, found := v.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
		if !found || claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != v1alpha1.DriverName {
				continue
			}
			grants = append(grants, grant{
				node: result.Pool, device: result.Device,
				memory:  v.amount(result, v1alpha1.CapacityMemory, formatMemory),
				compute: v.amount(result, v1alpha1.CapacityCompute, func(q resource.Quantity) string { return q.String() + "%" }),
			})
		}
	}
	return grants
}

// amount is what a result holds of a capacity: its consumption on a shared device, all of it on another.
func (v view) amount(r resourceapi.DeviceRequestAllocationResult, name resourceapi.QualifiedName, format func(resource.Quantity) string) string {
	if consumed, shared := r.ConsumedCapacity[name]; shared {
		return format(consumed)
	}
	capacity, published := v.devices[r.Pool][r.Device].Capacity[name]
	if !published {
		return "?"
	}
	return format(capacity.Value)
}

// claimNames are the claims that the pod uses, however it asked for them.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			names = append(names, *s.ResourceClaimName)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	return names
}

// whyWaiting is the word of the quota, or of the scheduler, on a pod that does not run; "" where nobody has decided yet.
func whyWaiting(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodSucceeded {
		return ""
	}
	word := ""
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionFalse:
		case c.Type == v1alpha1.PodQuotaReserved:
			return c.Message
		case c.Type == corev1.PodScheduled && strings.Contains(c.Message, "cannot allocate all claims"):
			word = shorten(c.Message)
		}
	}
	return word
}

// shorten keeps the part of the scheduler's message that says why, without its word on preemption.
func shorten(message string) string {
	message, _, _ = strings.Cut(message, " preemption:")
	message, _, _ = strings.Cut(message, "no new claims to deallocate")
	return strings.TrimRight(strings.TrimSpace(message), ",. ")
}

// formatMemory writes bytes in GiB, as people compare them with a GPU's size.
func formatMemory(q resource.Quantity) string {
	return fmt.Sprintf("%.4gGi", float64(q.Value())/(1<<30))
}
