// SPDX-License-Identifier: Apache-2.0

package queue

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of events on pods.
const (
	// ReasonQueued: the pod waits for room in its namespace's quota.
	ReasonQueued = "QuotaQueued"
	// ReasonReleased: the pod has waited, and was let go.
	ReasonReleased = "QuotaReleased"

	actionQueue = "Queue"

	// maxNote is the longest text of an event.
	maxNote = 1024
)

// eventRecorder is what the controller asks of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

func (r *Reconciler) isQueued(w word) {
	note := w.message
	if len(note) > maxNote {
		note = note[:maxNote-3] + "..."
	}
	r.Recorder.Eventf(reference(w.pod), nil, corev1.EventTypeNormal, ReasonQueued, actionQueue, "%s", note)
}

func (r *Reconciler) wasReleased(pod *corev1.Pod) {
	r.Recorder.Eventf(reference(pod), nil, corev1.EventTypeNormal, ReasonReleased, actionQueue, "let go: there is room in the quota")
}

// reference names a pod of which the cache has no kind.
func reference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
}
