// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/internal/quota"
)

// held is one allocated claim and what it costs.
type held struct {
	claim   *resourceapi.ResourceClaim
	charges quota.Charges
}

// look is what was seen of one namespace that has borrowed.
type look struct {
	namespace string
	claims    []held
	// pods are all pods of the namespace, looked up after the claims.
	pods map[types.UID]*corev1.Pod
	// complete is false where the cost of some claim is not known.
	complete bool
}

// holders are those that end together, and what is about to be free by itself.
//
// A claim that is used by something else than pods can be freed by nobody here, so it is left out: it stays held. What
// the ledger still counts of claims that are gone, or whose pods are gone, is about to be free. A pod that was deleted but
// may take longer to end than until by, as whoever deleted it says, holds its devices like any other.
func (l *look) holders(entry quota.Entry, by time.Time) []quota.Holder {
	groups := l.together()
	found := make([]quota.Holder, 0, len(groups)+1)
	seen := quota.Charges{}
	for _, c := range l.claims {
		seen.AddAll(c.charges)
	}
	for _, g := range groups {
		if holder, evictable := l.holder(g, by); evictable {
			found = append(found, holder)
		}
	}
	if gone := above(entry.Counted, seen); l.complete && entry.Unknown == 0 && !gone.Zero() {
		found = append(found, quota.Holder{Namespace: l.namespace, Charges: gone, Ending: true})
	}
	slices.SortFunc(found, func(a, b quota.Holder) int { return slices.Compare(a.Pods, b.Pods) })
	return found
}

// above is what is counted beyond what was seen.
func above(counted, seen quota.Charges) quota.Charges {
	more := quota.Charges{}
	for pool, amounts := range counted {
		for name, value := range amounts {
			if left := value - seen[pool][name]; left > 0 {
				more.Add(pool, quota.Amounts{name: left})
			}
		}
	}
	return more
}

// together groups claims that pods share, by the index of the first.
func (l *look) together() [][]int {
	parent := make([]int, len(l.claims))
	for i := range parent {
		parent[i] = i
	}
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	first := map[types.UID]int{}
	for i := range l.claims {
		for _, consumer := range l.claims[i].claim.Status.ReservedFor {
			other, known := first[consumer.UID]
			if !known {
				first[consumer.UID] = i
				continue
			}
			parent[find(i)] = find(other)
		}
	}
	groups := map[int][]int{}
	for i := range l.claims {
		groups[find(i)] = append(groups[find(i)], i)
	}
	sorted := make([][]int, 0, len(groups))
	for _, root := range slices.Sorted(maps.Keys(groups)) {
		sorted = append(sorted, groups[root])
	}
	return sorted
}

// holder is what a group of claims and their pods is to the plan.
func (l *look) holder(group []int, by time.Time) (quota.Holder, bool) {
	h := quota.Holder{Namespace: l.namespace, Charges: quota.Charges{}, Ending: true}
	priority := map[string]int32{}
	for _, i := range group {
		c := &l.claims[i]
		h.Charges.AddAll(c.charges)
		if since := allocated(c.claim); since.After(h.Since) {
			h.Since = since
		}
		for _, consumer := range c.claim.Status.ReservedFor {
			if consumer.APIGroup != "" || consumer.Resource != "pods" {
				return quota.Holder{}, false
			}
			if pod := l.pods[consumer.UID]; pod != nil && runs(pod, by) {
				h.Ending = false
				priority[pod.Name] = ptr.Deref(pod.Spec.Priority, 0)
			}
		}
	}
	h.Pods = slices.Sorted(maps.Keys(priority))
	if len(priority) > 0 {
		h.Priority = slices.Max(slices.Collect(maps.Values(priority)))
	}
	return h, true
}

// runs says whether a pod holds its devices until it is asked to end, or for longer than until by although it was.
func runs(pod *corev1.Pod, by time.Time) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !ended && (pod.DeletionTimestamp.IsZero() || pod.DeletionTimestamp.After(by))
}

func allocated(claim *resourceapi.ResourceClaim) time.Time {
	if at := claim.Status.Allocation.AllocationTimestamp; at != nil {
		return at.Time
	}
	return claim.CreationTimestamp.Time
}

// key names a holder.
func key(h *quota.Holder) string { return h.Namespace + "/" + strings.Join(h.Pods, ",") }
