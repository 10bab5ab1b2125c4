// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// sameStatus says whether two statuses say the same.
func sameStatus(a, b corev1.PodStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// pending is the status of a pod whose containers cannot start yet.
func pending(pod *corev1.Pod, reason, message string, now time.Time) corev1.PodStatus {
	status := begin(pod, now)
	status.Phase = corev1.PodPending
	wait := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	initialized := len(pod.Spec.InitContainers) == 0
	status.InitContainerStatuses = containers(pod, pod.Spec.InitContainers, func(corev1.Container) (corev1.ContainerState, bool) { return wait, false })
	status.ContainerStatuses = containers(pod, pod.Spec.Containers, func(corev1.Container) (corev1.ContainerState, bool) { return wait, false })
	setCondition(&status, corev1.PodReadyToStartContainers, false, "", now)
	setCondition(&status, corev1.PodInitialized, initialized, "ContainersNotInitialized", now)
	setCondition(&status, corev1.ContainersReady, false, "ContainersNotReady", now)
	setCondition(&status, corev1.PodReady, false, "ContainersNotReady", now)
	return status
}

// running is the status of a pod whose init containers have ended and whose containers work.
func running(pod *corev1.Pod, now time.Time) corev1.PodStatus {
	status := begin(pod, now)
	status.Phase = corev1.PodRunning
	at := metav1.NewTime(now)
	work := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
	status.InitContainerStatuses = containers(pod, pod.Spec.InitContainers, func(c corev1.Container) (corev1.ContainerState, bool) {
		if sidecar(c) {
			return work, true
		}
		return terminated(at, at, 0), true
	})
	status.ContainerStatuses = containers(pod, pod.Spec.Containers, func(corev1.Container) (corev1.ContainerState, bool) { return work, true })
	status.PodIP = podIP(pod)
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	for _, condition := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		setCondition(&status, condition, true, "", now)
	}
	return status
}

// ended is the status of a pod whose containers have ended with a code.
func ended(pod *corev1.Pod, code int32, now time.Time) corev1.PodStatus {
	status := begin(pod, now)
	status.Phase = corev1.PodSucceeded
	reason := "PodCompleted"
	if code != 0 {
		status.Phase, reason = corev1.PodFailed, "PodFailed"
	}
	at := metav1.NewTime(now)
	started := at
	if since := startedAt(pod); !since.IsZero() {
		started = metav1.NewTime(since)
	}
	finish := func(corev1.Container) (corev1.ContainerState, bool) { return terminated(started, at, code), false }
	status.InitContainerStatuses = containers(pod, pod.Spec.InitContainers, func(corev1.Container) (corev1.ContainerState, bool) {
		return terminated(started, at, 0), true
	})
	status.ContainerStatuses = containers(pod, pod.Spec.Containers, finish)
	setCondition(&status, corev1.PodReadyToStartContainers, false, "", now)
	setCondition(&status, corev1.ContainersReady, false, reason, now)
	setCondition(&status, corev1.PodReady, false, reason, now)
	return status
}

// begin is the status so far, with what holds from a pod's first sight on.
func begin(pod *corev1.Pod, now time.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	if status.StartTime == nil {
		status.StartTime = ptr.To(metav1.NewTime(now))
	}
	return status
}

func terminated(from, to metav1.Time, code int32) corev1.ContainerState {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: from, FinishedAt: to}}
}

func containers(pod *corev1.Pod, list []corev1.Container, state func(corev1.Container) (corev1.ContainerState, bool)) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for _, c := range list {
		s, ready := state(c)
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: s, Ready: ready, Started: ptr.To(s.Running != nil)}
		if s.Waiting == nil {
			status.ImageID = "lab://" + c.Image
			status.ContainerID = fmt.Sprintf("lab://%s/%s", pod.UID, c.Name)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func sidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// setCondition sets a condition; the time changes with the status alone. Other writers' conditions stay.
func setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, value bool, reason string, now time.Time) {
	condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}
	if !value {
		condition.Status, condition.Reason = corev1.ConditionFalse, reason
	}
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return
	}
	if status.Conditions[i].Status == condition.Status {
		condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = condition
}

// podIP gives a pod an address that looks like one; nothing answers there.
func podIP(pod *corev1.Pod) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.UID))
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 128+sum>>16&0x3f, sum>>8&0xff, 1+sum&0x7f)
}
