// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/tenants"
	"github.com/sluice-gpu/sluice/internal/quota"
)

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func named(name string, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Status:     corev1.PodStatus{Conditions: conditions},
	}
}

// shown is a condition as it was written some time ago.
func shown(status corev1.ConditionStatus, reason, message string, ago time.Duration) corev1.PodCondition {
	return corev1.PodCondition{
		Type: v1alpha1.PodQuotaReserved, Status: status, Reason: reason, Message: message, LastProbeTime: metav1.NewTime(noon().Add(-ago)),
	}
}

func inState(pod *corev1.Pod, apart string) tenants.Pod {
	return tenants.Pod{Object: pod, Line: quota.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}, Apart: apart}
}

func turn(name string, position int, refusal *quota.Refusal) quota.Turn {
	return quota.Turn{Pod: quota.Pod{UID: name, Namespace: "team"}, Release: position == 0, Position: position, Refusal: refusal}
}

func full() *quota.Refusal {
	return &quota.Refusal{Reason: quota.RefusedHard, Sentence: "gpus: 1 asked"}
}

func TestDecide(t *testing.T) {
	behind := func(ago time.Duration, place string) corev1.PodCondition {
		return shown(corev1.ConditionFalse, v1alpha1.ReasonBehindOthers, place+": pods before it wait for room", ago)
	}
	for _, tc := range []struct {
		name    string
		state   tenants.State
		waiting []tenants.Pod
		turns   []quota.Turn
		notes   podNotes
		want    []string
		again   time.Duration
	}{
		{
			name: "who has room is let go, the others are told where they stand", again: recheck,
			waiting: []tenants.Pod{inState(named("a"), ""), inState(named("b"), ""), inState(named("c"), "")},
			turns:   []quota.Turn{turn("a", 0, nil), turn("b", 1, full()), turn("c", 2, nil)},
			want: []string{
				"release a", "tell b False AboveHard position 1: gpus: 1 asked",
				"tell c False BehindOthers position 2: pods before it wait for room",
			},
		},
		{
			name: "whoever was told the same is not told again", again: recheck,
			waiting: []tenants.Pod{inState(named("a", behind(time.Hour, "position 2")), "")}, turns: []quota.Turn{turn("a", 2, nil)},
		},
		{
			name: "other numbers in the sentence are no news", again: recheck,
			waiting: []tenants.Pod{inState(named("a", shown(corev1.ConditionFalse, "AboveHard", "position 1: gpus: 2 asked", time.Hour)), "")},
			turns:   []quota.Turn{turn("a", 1, full())},
		},
		{
			name: "a new position waits for its minute", again: 10 * time.Second,
			waiting: []tenants.Pod{inState(named("a", behind(50*time.Second, "position 3")), "")}, turns: []quota.Turn{turn("a", 2, nil)},
		},
		{
			name: "and is told after it", again: recheck,
			waiting: []tenants.Pod{inState(named("a", behind(time.Minute, "position 3")), "")}, turns: []quota.Turn{turn("a", 2, nil)},
			want: []string{"tell a False BehindOthers position 2: pods before it wait for room"},
		},
		{
			name: "what was written counts before the cache shows it", again: 15 * time.Second,
			waiting: []tenants.Pod{inState(named("a"), "")}, turns: []quota.Turn{turn("a", 2, nil)},
			notes: podNotes{"a": {told: word{status: corev1.ConditionFalse, place: "position 3"}, toldAt: noon().Add(-45 * time.Second)}},
		},
		{
			name: "behind the tenth, positions are told in tens", again: recheck,
			waiting: []tenants.Pod{inState(named("a", behind(time.Hour, "among the first 30")), ""), inState(named("b"), "")},
			turns:   []quota.Turn{turn("a", 21, nil), turn("b", 11, nil)},
			want:    []string{"tell b False BehindOthers among the first 20: pods before it wait for room"},
		},
		{
			name: "a pod that could never fit hears so", again: recheck,
			waiting: []tenants.Pod{inState(named("a"), "")},
			turns:   []quota.Turn{turn("a", 1, &quota.Refusal{Reason: quota.RefusedHard, Never: true, Sentence: "ask for less"})},
			want:    []string{"tell a False AboveHard cannot fit: ask for less"},
		},
		{
			name: "who is not in line hears why", again: recheck,
			state: tenants.State{Apart: []tenants.Pod{inState(named("a"), "its claim c is not there")}},
			want:  []string{"tell a False NotInLine not in line: its claim c is not there"},
		},
		{
			name:  "where nobody queues everybody is let go, once",
			state: tenants.State{Unqueued: []tenants.Pod{inState(named("a"), ""), inState(named("b"), "")}},
			notes: podNotes{"b": {released: true}}, want: []string{"release a"},
		},
		{
			name: "a pod that was let go says so at once, if it has waited", again: recheck,
			state: tenants.State{UnderWay: []tenants.Pod{inState(named("a", behind(time.Second, "position 1")), ""), inState(named("b"), "")}},
			want:  []string{"tell a True Released let go: there is room in the quota"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			steps := decide(tc.state, tc.waiting, tc.turns, tc.notes, noon())
			var got []string
			for _, pod := range steps.release {
				got = append(got, "release "+pod.Name)
			}
			for _, w := range steps.tell {
				got = append(got, fmt.Sprintf("tell %s %s %s %s", w.pod.Name, w.status, w.reason, w.message))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if steps.again != tc.again {
				t.Errorf("again: want %s, got %s", tc.again, steps.again)
			}
		})
	}
}

func TestManyAreToldInParts(t *testing.T) {
	var waiting []tenants.Pod
	var turns []quota.Turn
	for i := range atOnce + 1 {
		name := fmt.Sprint(i)
		waiting = append(waiting, inState(named(name), ""))
		turns = append(turns, turn(name, i+1, nil))
	}
	steps := decide(tenants.State{}, waiting, turns, nil, noon())
	if len(steps.tell) != atOnce || steps.again != soon {
		t.Errorf("want %d told and a look after %s, got %d and %s", atOnce, soon, len(steps.tell), steps.again)
	}
}

func TestNotesAreKeptWhileThePodIsThere(t *testing.T) {
	var n notes
	state := tenants.State{Waiting: []tenants.Pod{inState(named("a"), ""), inState(named("b"), "")}}
	n.take("l", state)["a"] = note{released: true}
	underWay, waiting := n.take("l", state).split(state)
	if len(underWay) != 1 || underWay[0].Object.Name != "a" || len(waiting) != 1 {
		t.Errorf("want a under way and b waiting, got %v and %v", underWay, waiting)
	}
	n.take("l", tenants.State{})
	if len(n.all) != 0 {
		t.Errorf("notes are kept of pods that are gone: %v", n.all)
	}
}

func TestCounts(t *testing.T) {
	var changed []string
	c := NewCounts(func(ledger string) { changed = append(changed, ledger) })
	c.set("cohort-c", map[string]int32{"a": 2, "b": 0})
	c.set("cohort-c", map[string]int32{"a": 2, "b": 0})
	c.set("namespace-b", map[string]int32{"b": 5})
	c.set("cohort-c", map[string]int32{"a": 2})
	if a, b, other := c.Of("a"), c.Of("b"), c.Of("other"); a != 2 || b != 5 || other != 0 {
		t.Errorf("want 2, 5 and 0 waiting, got %d, %d and %d", a, b, other)
	}
	if want := []string{"cohort-c", "namespace-b", "cohort-c"}; !slices.Equal(changed, want) {
		t.Errorf("changes: want %v, got %v", want, changed)
	}
}
