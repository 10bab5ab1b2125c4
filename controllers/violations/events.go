// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/violation"
)

// Reasons of events on pods.
const (
	// ReasonEvicted: the pod was evicted because its share is not kept to.
	ReasonEvicted = "EvictedForViolation"
	// ReasonBlocked: the pod would have been evicted for that, and may not.
	ReasonBlocked = "ViolationEvictionBlocked"

	actionEvict = "Evict"

	// maxNote is the longest text of an event.
	maxNote = 1024
)

// eventRecorder is what the controller asks of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

func (r *Reconciler) wasEvicted(pod *corev1.Pod, node *v1alpha1.GPUNode, e violation.Eviction) {
	r.events.Eventf(pod, nil, corev1.EventTypeWarning, ReasonEvicted, actionEvict, "%s",
		bounded(fmt.Sprintf("evicted from node %s: %s", node.Name, why(e.Violation))))
}

func (r *Reconciler) isBlocked(pod *corev1.Pod, e violation.Eviction, forbidden string) {
	r.events.Eventf(pod, nil, corev1.EventTypeWarning, ReasonBlocked, actionEvict, "%s",
		bounded(fmt.Sprintf("%s, but the pod may not be evicted: %s", why(e.Violation), forbidden)))
}

// why says what a pod is evicted for.
func why(v v1alpha1.Violation) string {
	if v.Reason == v1alpha1.ReasonOverLimit && v.Held != nil && v.Limit != nil {
		return fmt.Sprintf("its share holds %s of GPU %s, more than its limit of %s", v.Held, v.GPU, v.Limit)
	}
	return fmt.Sprintf("its share of GPU %s is used past the library by %s", v.GPU, strings.Join(v.Processes, ", "))
}

func bounded(note string) string {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	return note
}
