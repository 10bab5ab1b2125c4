// SPDX-License-Identifier: Apache-2.0

package template

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of events on pods.
const (
	// ReasonLargerProfile: in a MIG pool an amount got a larger instance than its number suggests, because the instance
	// named like it has a little less.
	ReasonLargerProfile = "LargerProfile"
	// ReasonInvalidRequest: the pod's request annotation is not what admission wrote, so no claim is made for it.
	ReasonInvalidRequest = "InvalidRequest"

	actionRequest = "Request"

	// maxNote is the longest text of an event.
	maxNote = 1024
)

func (r *Reconciler) largerProfile(pod *metav1.PartialObjectMetadata, sentence string) {
	r.Recorder.Eventf(reference(pod), nil, corev1.EventTypeNormal, ReasonLargerProfile, actionRequest, "%s", cut(sentence))
}

func (r *Reconciler) invalidRequest(pod *metav1.PartialObjectMetadata, why error) {
	note := "the annotation sluice.dev/request is not what admission wrote (" + why.Error() +
		"): create the pod again with sluice.dev/* limits and without this annotation"
	r.Recorder.Eventf(reference(pod), nil, corev1.EventTypeWarning, ReasonInvalidRequest, actionRequest, "%s", cut(note))
}

// reference names a pod of which only the metadata is known.
func reference(pod *metav1.PartialObjectMetadata) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
}

func cut(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return note[:maxNote-3] + "..."
}
