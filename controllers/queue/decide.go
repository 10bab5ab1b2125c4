// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/tenants"
	"github.com/sluice-gpu/sluice/internal/quota"
)

const (
	// pause is the least time between two writes of where one pod stands.
	pause = time.Minute
	// atOnce is how many pods are told where they stand before the queue is looked at again: letting go comes first.
	atOnce = 50
	// soon is when the rest is told.
	soon = 200 * time.Millisecond
	// recheck is when a pod that was let go may be stuck, so that others no longer wait for it.
	recheck = 15 * time.Second
)

// word is what a pod is told.
type word struct {
	pod    *corev1.Pod
	status corev1.ConditionStatus
	reason string
	// place is the position as it is shown, and begins the message.
	place, message string
}

// same says whether a pod would be told nothing new. The numbers in the message alone are not news.
func (w word) same(other word) bool {
	return w.status == other.status && w.reason == other.reason && w.place == other.place
}

// steps are what is to be done.
type steps struct {
	release []*corev1.Pod
	tell    []word
	again   time.Duration
}

// later keeps the earliest time to look again.
func (s *steps) later(after time.Duration) {
	if s.again == 0 || after < s.again {
		s.again = after
	}
}

// decide says which gates are lifted, who is told what, and when to look again.
func decide(state tenants.State, waiting []tenants.Pod, turns []quota.Turn, notes podNotes, now time.Time) steps {
	var s steps
	objects := make(map[string]*corev1.Pod, len(waiting))
	for i := range waiting {
		objects[waiting[i].Line.UID] = waiting[i].Object
	}
	for i := range state.Unqueued {
		if pod := state.Unqueued[i].Object; !notes[pod.UID].released {
			s.release = append(s.release, pod)
		}
	}
	var words []word
	for i := range turns {
		pod := objects[turns[i].Pod.UID]
		if turns[i].Release {
			s.release = append(s.release, pod)
			continue
		}
		words = append(words, inLine(pod, &turns[i]))
	}
	for i := range state.Apart {
		words = append(words, word{
			pod: state.Apart[i].Object, status: corev1.ConditionFalse, reason: v1alpha1.ReasonNotInLine,
			place: "not in line", message: "not in line: " + state.Apart[i].Apart,
		})
	}
	for i := range state.UnderWay {
		if pod := state.UnderWay[i].Object; hasWaited(pod) {
			words = append(words, released(pod))
		}
	}
	s.choose(words, notes, now)
	if len(words) > 0 {
		s.later(recheck)
	}
	return s
}

// choose keeps the words that are news, and not too soon after the last.
func (s *steps) choose(words []word, notes podNotes, now time.Time) {
	for _, w := range words {
		before, at := lastWord(w.pod, notes)
		switch left := pause - now.Sub(at); {
		case w.same(before):
		case left > 0 && w.status == before.status:
			s.later(left)
		case len(s.tell) == atOnce:
			s.later(soon)
		default:
			s.tell = append(s.tell, w)
		}
	}
}

// inLine is what a waiting pod is told.
func inLine(pod *corev1.Pod, turn *quota.Turn) word {
	w := word{pod: pod, status: corev1.ConditionFalse, reason: v1alpha1.ReasonBehindOthers, place: place(turn.Position)}
	if turn.Refusal == nil {
		w.message = w.place + ": pods before it wait for room"
		return w
	}
	w.reason = string(turn.Refusal.Reason)
	w.message = w.place + ": " + turn.Refusal.Sentence
	if turn.Refusal.Never {
		w.place = "cannot fit"
		w.message = w.place + ": " + turn.Refusal.Sentence
	}
	return w
}

// place writes a position among the waiting pods of the namespace.
func place(position int) string {
	step := quota.Step(position)
	if step <= 10 {
		return fmt.Sprintf("position %d", step)
	}
	return fmt.Sprintf("among the first %d", step)
}

func released(pod *corev1.Pod) word {
	return word{
		pod: pod, status: corev1.ConditionTrue, reason: v1alpha1.ReasonReleased,
		place: "let go", message: "let go: there is room in the quota",
	}
}

// lastWord is what a pod was told last, and when: as noted, or as the pod itself shows.
func lastWord(pod *corev1.Pod, notes podNotes) (word, time.Time) {
	if noted := notes[pod.UID]; !noted.toldAt.IsZero() {
		return noted.told, noted.toldAt
	}
	c := conditionOf(pod)
	if c == nil {
		return word{}, time.Time{}
	}
	shown, _, _ := strings.Cut(c.Message, ":")
	return word{status: c.Status, reason: c.Reason, place: shown}, c.LastProbeTime.Time
}

// hasWaited says whether a pod was told that it waits.
func hasWaited(pod *corev1.Pod) bool {
	c := conditionOf(pod)
	return c != nil && c.Status == corev1.ConditionFalse
}

func conditionOf(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == v1alpha1.PodQuotaReserved {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
