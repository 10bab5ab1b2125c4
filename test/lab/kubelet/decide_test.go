// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name      string
		phase     corev1.PodPhase
		deleting  bool
		claims    bool
		deleted   bool
		exitAfter string
		want      step
		wantAgain time.Duration
	}{
		{name: "a new pod is started", phase: corev1.PodPending, want: stepStart},
		{name: "a pod whose start failed half way is started again", phase: corev1.PodPending, claims: true, want: stepStart},
		{name: "a running pod is left alone", phase: corev1.PodRunning, claims: true, want: stepNone},
		{name: "a running pod with a time to end is looked at then", phase: corev1.PodRunning, exitAfter: "90s", want: stepNone, wantAgain: 30 * time.Second},
		{name: "a running pod whose time has come is ended", phase: corev1.PodRunning, exitAfter: "60s", want: stepEnd},
		{name: "a time to end that cannot be read is none", phase: corev1.PodRunning, exitAfter: "soon", want: stepNone},
		{name: "a running pod to be deleted is ended first", phase: corev1.PodRunning, deleting: true, claims: true, want: stepEnd},
		{name: "an ended pod gives its claims back", phase: corev1.PodSucceeded, claims: true, want: stepRelease},
		{name: "an ended pod without claims stays", phase: corev1.PodFailed, want: stepNone},
		{name: "an ended pod to be deleted gives its claims back first", phase: corev1.PodSucceeded, deleting: true, claims: true, want: stepRelease},
		{name: "an ended pod to be deleted that has no claims goes", phase: corev1.PodSucceeded, deleting: true, want: stepDelete},
		{name: "a pod to be deleted before it started gives its claims back", phase: corev1.PodPending, deleting: true, claims: true, want: stepRelease},
		{name: "a pod to be deleted before anything happened goes", phase: corev1.PodPending, deleting: true, want: stepDelete},
		{name: "a pod deleted for good is not deleted again", phase: corev1.PodSucceeded, deleting: true, deleted: true, want: stepNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ExitAfter: tc.exitAfter}}}
			pod.Status.Phase = tc.phase
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-time.Minute))},
			}}}
			if tc.deleting {
				pod.DeletionTimestamp = ptr.To(metav1.NewTime(now))
			}
			got, again := decide(pod, local{claims: tc.claims, deleted: tc.deleted, now: now})
			if got != tc.want || again != tc.wantAgain {
				t.Errorf("decide = %v, %v; want %v, %v", got, again, tc.want, tc.wantAgain)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		want        int32
	}{
		{name: "none given is success", want: 0},
		{name: "a code is taken", value: "137", want: 137},
		{name: "what no process can end with is success", value: "300", want: 0},
		{name: "a word is success", value: "bad", want: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ExitCode: tc.value}}}
			if got := exitCode(pod); got != tc.want {
				t.Errorf("exitCode = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestStatusKeepsWhatOthersWrote(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("claim")}}

	pod.Status = running(pod, now)
	if pod.Status.Conditions[0].Type != corev1.PodScheduled || len(pod.Status.ResourceClaimStatuses) != 1 {
		t.Errorf("the scheduler's condition or the claims are lost: %+v", pod.Status)
	}
	setup, proxy := pod.Status.InitContainerStatuses[0], pod.Status.InitContainerStatuses[1]
	if setup.State.Terminated == nil || proxy.State.Running == nil {
		t.Errorf("init containers: %+v and %+v, want one ended, the sidecar running", setup.State, proxy.State)
	}
	later := now.Add(time.Hour)
	again := running(pod, later)
	again.InitContainerStatuses, again.ContainerStatuses = pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses
	if !sameStatus(again, pod.Status) {
		t.Error("conditions that did not change got a new time")
	}
	pod.Status = ended(pod, 1, later)
	state := pod.Status.ContainerStatuses[0].State.Terminated
	if pod.Status.Phase != corev1.PodFailed || state == nil || state.ExitCode != 1 || !state.StartedAt.Time.Equal(now) {
		t.Errorf("after its end: phase %s, state %+v", pod.Status.Phase, state)
	}
}
