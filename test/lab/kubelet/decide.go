// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Annotations by which a pod says how long it works, as nothing does here.
const (
	// ExitAfter is how long after its start the pod ends, as a Go duration.
	ExitAfter = "lab.sluice.dev/exit-after"
	// ExitCode is what its containers then end with; 0 unless given.
	ExitCode = "lab.sluice.dev/exit-code"
)

// step is what to do next with a pod.
type step int

const (
	// stepNone: nothing, but perhaps later.
	stepNone step = iota
	// stepStart: prepare its claims and report it as running.
	stepStart
	// stepEnd: report its containers as ended.
	stepEnd
	// stepRelease: it has ended; give its claims back.
	stepRelease
	// stepDelete: it is to be deleted and nothing keeps it.
	stepDelete
)

// local is what the kubelet itself knows of a pod.
type local struct {
	// claims says that the checkpoint has claims that the pod uses.
	claims bool
	// deleted says that it was deleted for good already, though the watch does not show it yet.
	deleted bool
	now     time.Time
}

// decide says what is next for a pod, and after how long to look again if nothing is.
func decide(pod *corev1.Pod, l local) (step, time.Duration) {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	running := pod.Status.Phase == corev1.PodRunning
	deleting := pod.DeletionTimestamp != nil
	switch {
	case l.deleted:
		return stepNone, 0
	case (ended || deleting && !running) && l.claims:
		return stepRelease, 0
	case ended && deleting, deleting && !running:
		return stepDelete, 0
	case ended:
		return stepNone, 0
	case deleting:
		return stepEnd, 0
	case !running:
		return stepStart, 0
	}
	after, err := time.ParseDuration(pod.Annotations[ExitAfter])
	if err != nil {
		return stepNone, 0
	}
	if left := startedAt(pod).Add(after).Sub(l.now); left > 0 {
		return stepNone, left
	}
	return stepEnd, 0
}

// startedAt is when the last of a running pod's containers started.
func startedAt(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil && c.State.Running.StartedAt.After(last) {
			last = c.State.Running.StartedAt.Time
		}
	}
	return last
}

// exitCode is what the pod's containers end with.
func exitCode(pod *corev1.Pod) int32 {
	code, err := strconv.ParseInt(pod.Annotations[ExitCode], 10, 32)
	if err != nil || code < 0 || code > 255 {
		return 0
	}
	return int32(code)
}
