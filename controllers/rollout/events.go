// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/rollouts"
)

// Reasons and actions of the events of evictions.
const (
	reasonEvicted = "EvictedForRollout"
	actionEvict   = "Evict"
)

// eventRecorder is what the controller asks of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// announce tells the pod's owner and the pool's that a pod is evicted, and why.
func (r *Reconciler) announce(pool *v1alpha1.GPUPool, e rollouts.Eviction) {
	pod, err := podOf(e)
	if err != nil {
		return // it was evicted by this name
	}
	why := "it takes another form"
	switch e.Reason {
	case v1alpha1.TaintLayoutChanged:
		why = "it gets other MIG instances"
	case v1alpha1.TaintExcluded:
		why = "it is excluded"
	default:
	}
	r.events.Eventf(pod, pool, corev1.EventTypeWarning, reasonEvicted, actionEvict,
		"Evicted from GPU %s of node %s: pool %s drains it because %s", e.UUID, e.Node, pool.Name, why)
	r.events.Eventf(pool, pod, corev1.EventTypeNormal, reasonEvicted, actionEvict,
		"Evicted pod %s from GPU %s of node %s because %s", e.Name, e.UUID, e.Node, why)
}
