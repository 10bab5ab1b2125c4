// SPDX-License-Identifier: Apache-2.0

package violation

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Eviction is a pod that is to be evicted because of a violation.
type Eviction struct {
	Namespace, Pod string
	UID            types.UID
	// Violation is what it is evicted for.
	Violation v1alpha1.Violation
}

// Evictions are the pods that a node's violations make leave, given the claims that hold its devices. An agent is believed about
// its own node's tenants and nobody else's: the decision for the GPU must say Evict, the claim must hold a device of the node as
// that result, and the pod must be one that the claim is reserved for.
func Evictions(node *v1alpha1.GPUNode, claims []resourceapi.ResourceClaim) []Eviction {
	var evictions []Eviction
	for _, v := range node.Status.Violations {
		if v.Action != v1alpha1.ViolationEvict || !decided(node, v.GPU) {
			continue
		}
		i := slices.IndexFunc(claims, func(c resourceapi.ResourceClaim) bool { return string(c.UID) == v.ClaimUID })
		if i < 0 || !holds(&claims[i], node.Name, int(ptr.Deref(v.Result, -1))) {
			continue
		}
		for _, user := range claims[i].Status.ReservedFor {
			e := Eviction{Namespace: claims[i].Namespace, Pod: user.Name, UID: user.UID, Violation: v}
			pod := user.APIGroup == "" && user.Resource == "pods"
			named := len(v.Pods) == 0 || slices.Contains(v.Pods, e.Namespace+"/"+e.Pod)
			known := slices.ContainsFunc(evictions, func(other Eviction) bool { return other.UID == e.UID })
			if pod && named && !known {
				evictions = append(evictions, e)
			}
		}
	}
	return evictions
}

// decided is true where the pool that has the GPU says that violations lead to evictions.
func decided(node *v1alpha1.GPUNode, uuid string) bool {
	return slices.ContainsFunc(node.Decisions(), func(d v1alpha1.GPUDecision) bool {
		return d.UUID == uuid && d.OnViolation == v1alpha1.ViolationEvict
	})
}

// holds is true where a result of a claim is a device of Sluice on the node.
func holds(claim *resourceapi.ResourceClaim, node string, result int) bool {
	if claim.Status.Allocation == nil || result < 0 || result >= len(claim.Status.Allocation.Devices.Results) {
		return false
	}
	r := claim.Status.Allocation.Devices.Results[result]
	return r.Driver == v1alpha1.DriverName && r.Pool == node && !ptr.Deref(r.AdminAccess, false)
}
