// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/internal/quota"
)

// Reasons of events on pods.
const (
	// ReasonReclaiming: the pod has borrowed what its owner needs, and is about to be evicted.
	ReasonReclaiming = "QuotaReclaiming"
	// ReasonReclaimed: the pod was evicted for that.
	ReasonReclaimed = "QuotaReclaimed"
	// ReasonReclaimBlocked: a pod that would have to end may not be evicted. The event is on the waiting pod.
	ReasonReclaimBlocked = "QuotaReclaimBlocked"

	actionReclaim = "Reclaim"

	// maxNote is the longest text of an event.
	maxNote = 1024
)

// eventRecorder is what the controller asks of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

func (r *Reconciler) willBeEvicted(pod *corev1.Pod, victim *quota.Victim) {
	r.Recorder.Eventf(reference(pod), waiting(victim), corev1.EventTypeWarning, ReasonReclaiming, actionReclaim,
		"the pod holds what namespace %s has borrowed and is to be evicted: pod %s/%s needs it within its namespace's guarantee",
		pod.Namespace, victim.For.Namespace, victim.For.Name)
}

func (r *Reconciler) wasEvicted(pod *corev1.Pod, victim *quota.Victim) {
	r.Recorder.Eventf(reference(pod), waiting(victim), corev1.EventTypeNormal, ReasonReclaimed, actionReclaim,
		"evicted: what namespace %s had borrowed goes back to namespace %s", pod.Namespace, victim.For.Namespace)
}

func (r *Reconciler) isBlocked(victim *quota.Victim, why string) {
	note := fmt.Sprintf("the pod waits within its namespace's guarantee, but %s may not be evicted: %s", key(&victim.Holder), why)
	if len(note) > maxNote {
		note = note[:maxNote-3] + "..."
	}
	r.Recorder.Eventf(waiting(victim), nil, corev1.EventTypeWarning, ReasonReclaimBlocked, actionReclaim, "%s", note)
}

// waiting names the pod for which somebody is evicted.
func waiting(victim *quota.Victim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: victim.For.Namespace, Name: victim.For.Name, UID: types.UID(victim.For.UID),
	}
}

func reference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
}
