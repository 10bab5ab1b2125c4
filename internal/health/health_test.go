// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/health"
)

// at is a time of the story, in seconds.
func at(seconds int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

// story is what happens to a GPU, step by step.
type story struct {
	course health.Course
}

type step func(*story)

func reports(seconds int, xid uint64) step {
	return func(s *story) { s.course = s.course.Reported(xid, at(seconds), health.DefaultRules()) }
}

// storm is a report in each second from one to the one before another.
func storm(from, to int, xid uint64) []step {
	var steps []step
	for seconds := from; seconds < to; seconds++ {
		steps = append(steps, reports(seconds, xid))
	}
	return steps
}

func says(seconds int, v health.Vitals) step {
	return func(s *story) { s.course = s.course.Read(v, at(seconds), health.DefaultRules()) }
}

func is(seconds int, r health.Reach) step {
	return func(s *story) { s.course = s.course.Reached(r, at(seconds)) }
}

func recovery(r health.Recovery) health.Vitals { return health.Vitals{Recovery: r, Remaps: true} }

func TestJudge(t *testing.T) {
	well := recovery(health.RecoveryNone)
	for _, tc := range []struct {
		name    string
		steps   []step
		seconds int
		want    v1alpha1.HealthState
		reason  string
		xid     int32
	}{
		{name: "nothing has happened", want: "Healthy", reason: "Healthy"},
		{
			name:  "errors of applications do not condemn",
			steps: []step{reports(0, 13), reports(0, 31), reports(0, 43), reports(0, 45), reports(0, 68), reports(0, 69), reports(0, 94), reports(0, 109), reports(0, 137)},
			want:  "Healthy", reason: "Healthy",
		},
		{name: "notices do not condemn", steps: []step{reports(0, 63), reports(0, 154)}, want: "Healthy", reason: "Healthy"},
		{name: "an error of the hardware makes it suspect", steps: []step{says(0, well), reports(0, 48)}, seconds: 59, want: "Suspect", reason: "XID", xid: 48},
		{name: "an XID that nobody knows does so too", steps: []step{says(0, well), reports(0, 9999)}, want: "Suspect", reason: "XID", xid: 9999},
		{name: "quiet ends it where the driver wants nothing done", steps: []step{says(0, well), reports(0, 48)}, seconds: 60, want: "Healthy", reason: "Healthy"},
		{name: "quiet takes longer where the driver does not say", steps: []step{reports(0, 48)}, seconds: 599, want: "Suspect", reason: "XID", xid: 48},
		{name: "and ends it all the same", steps: []step{reports(0, 48)}, seconds: 600, want: "Healthy", reason: "Healthy"},
		{
			name:  "an error that comes again counts for longer",
			steps: []step{says(0, well), reports(0, 74), reports(70, 74), reports(140, 74)}, seconds: 140 + 239, want: "Suspect", reason: "XID", xid: 74,
		},
		{
			name:  "the reports of one error are one error, however many there are",
			steps: append([]step{says(0, well)}, storm(0, 9, 74)...), seconds: 8 + 60, want: "Healthy", reason: "Healthy",
		},
		{
			name:  "errors that do not cease count for longer",
			steps: append([]step{says(0, well)}, storm(0, 40, 74)...), seconds: 39 + 479, want: "Suspect", reason: "XID", xid: 74,
		},
		{
			name:  "what the driver wants done counts until it is done",
			steps: []step{reports(0, 119), says(1, recovery(health.RecoveryReset))}, seconds: 3000, want: "Suspect", reason: "RecoveryNeeded", xid: 119,
		},
		{
			name:  "once it is done the error is over",
			steps: []step{reports(0, 119), says(1, recovery(health.RecoveryReset)), says(5, well)}, seconds: 5, want: "Healthy", reason: "Healthy",
		},
		{name: "a reboot that is wanted needs no error", steps: []step{says(0, recovery(health.RecoveryReboot))}, want: "Suspect", reason: "RecoveryNeeded"},
		{name: "new memory errors make it suspect", steps: []step{says(0, well), says(1, health.Vitals{Recovery: health.RecoveryNone, Remaps: true, Uncorrected: 1})}, seconds: 2, want: "Suspect", reason: "UncorrectableECC"},
		{name: "those of before the agent do not where rows are replaced", steps: []step{says(0, health.Vitals{Recovery: health.RecoveryNone, Remaps: true, Uncorrected: 1})}, want: "Healthy", reason: "Healthy"},
		{name: "and do where they are not", steps: []step{says(0, health.Vitals{Uncorrected: 1})}, seconds: 9000, want: "Suspect", reason: "UncorrectableECC"},
		{name: "a row waits for a reset", steps: []step{says(0, health.Vitals{Remaps: true, RemapPending: true})}, want: "Suspect", reason: "RowRemapPending"},
		{name: "there are no spare rows", steps: []step{says(0, health.Vitals{Remaps: true, RemapFailed: true, RemapPending: true})}, want: "Suspect", reason: "RowRemapFailed"},
		{name: "a brake is reported", steps: []step{says(0, health.Vitals{ThermalBrake: true})}, seconds: 299, want: "Healthy", reason: "ThermalBrake"},
		{name: "one that lasts makes it suspect", steps: []step{says(0, health.Vitals{PowerBrake: true}), says(100, health.Vitals{PowerBrake: true})}, seconds: 300, want: "Suspect", reason: "PowerBrake"},
		{name: "one that ends is over", steps: []step{says(0, health.Vitals{PowerBrake: true}), says(400, health.Vitals{})}, seconds: 400, want: "Healthy", reason: "Healthy"},
		{name: "a GPU that hangs is suspect", steps: []step{is(0, health.Hangs)}, seconds: 9000, want: "Suspect", reason: "NVMLHangs"},
		{name: "until it answers", steps: []step{is(0, health.Hangs), is(100, health.Answers)}, seconds: 100, want: "Healthy", reason: "Healthy"},
		{name: "a GPU that is gone may come back", steps: []step{is(0, health.Gone)}, seconds: 29, want: "Suspect", reason: "OffBus"},
		{name: "it is lost where that lasts", steps: []step{is(0, health.Gone)}, seconds: 30, want: "Lost", reason: "OffBus"},
		{name: "hanging does not make it better", steps: []step{is(0, health.Gone), is(20, health.Hangs)}, seconds: 30, want: "Lost", reason: "OffBus"},
		{name: "it is lost at once where the driver has said why", steps: []step{reports(0, 79), is(0, health.Gone)}, want: "Lost", reason: "OffBus", xid: 79},
		{name: "XID 79 of a GPU that answers makes it suspect", steps: []step{reports(0, 79)}, want: "Suspect", reason: "XID", xid: 79},
		{name: "coming back ends what was known", steps: []step{reports(0, 79), is(0, health.Gone), is(60, health.Answers)}, seconds: 60, want: "Healthy", reason: "Healthy"},
		{name: "but not what shows", steps: []step{is(0, health.Gone), is(60, health.Answers), says(60, recovery(health.RecoveryReset))}, seconds: 60, want: "Suspect", reason: "RecoveryNeeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s story
			for _, step := range tc.steps {
				step(&s)
			}
			got := s.course.Judge("GPU-1", at(tc.seconds), health.DefaultRules())
			if got.State != tc.want || got.Reason != tc.reason || got.XID != tc.xid {
				t.Errorf("it is %s %s %d, want %s %s %d", got.State, got.Reason, got.XID, tc.want, tc.reason, tc.xid)
			}
			if healthy := got.Reason == v1alpha1.HealthReasonHealthy; healthy != (got.Message == "") {
				t.Errorf("the message is %q", got.Message)
			}
		})
	}
}

func TestALostGPUIsForgottenInTheEnd(t *testing.T) {
	course := health.Course{}.Reached(health.Gone, at(0))
	for seconds, want := range map[int]bool{30: false, 299: false, 300: true} {
		if got := course.Judge("GPU-1", at(seconds), health.DefaultRules()).Forget; got != want {
			t.Errorf("after %d s it is forgotten: %v, want %v", seconds, got, want)
		}
	}
}

func TestResume(t *testing.T) {
	since := ptr.To(metav1.NewTime(at(0)))
	for _, tc := range []struct {
		name    string
		before  v1alpha1.GPUHealth
		steps   []step
		seconds int
		want    v1alpha1.HealthState
	}{
		{name: "an error counts on", before: v1alpha1.GPUHealth{State: "Suspect", Reason: "XID", XID: 48, Since: since}, seconds: 100, want: "Suspect"},
		{name: "and ends when it would have", before: v1alpha1.GPUHealth{State: "Suspect", Reason: "XID", XID: 48, Since: since}, seconds: 600, want: "Healthy"},
		{name: "what shows is seen again", before: v1alpha1.GPUHealth{State: "Suspect", Reason: "RowRemapPending", Since: since}, want: "Healthy"},
		{name: "a lost GPU stays lost", before: v1alpha1.GPUHealth{State: "Lost", Reason: "OffBus", Since: since}, want: "Lost"},
		{name: "and is so where it is not there", before: v1alpha1.GPUHealth{State: "Lost", Reason: "OffBus", Since: since}, steps: []step{is(1, health.Gone)}, seconds: 2, want: "Lost"},
		{name: "or hangs", before: v1alpha1.GPUHealth{State: "Lost", Reason: "OffBus", Since: since}, steps: []step{is(1, health.Hangs)}, seconds: 2, want: "Lost"},
		{name: "until it answers", before: v1alpha1.GPUHealth{State: "Lost", Reason: "OffBus", XID: 79, Since: since}, steps: []step{is(1, health.Answers)}, seconds: 2, want: "Healthy"},
		{name: "being lost once does not count twice", before: v1alpha1.GPUHealth{State: "Lost", Reason: "OffBus", Since: since}, steps: []step{is(1, health.Answers), is(2, health.Gone)}, seconds: 3, want: "Suspect"},
		{name: "a GPU that was gone for a moment is looked at again", before: v1alpha1.GPUHealth{State: "Suspect", Reason: "OffBus", Since: since}, want: "Healthy"},
		{name: "nothing was reported", want: "Healthy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := story{course: health.Resume(tc.before)}
			for _, step := range tc.steps {
				step(&s)
			}
			got := s.course.Judge("GPU-1", at(tc.seconds), health.DefaultRules())
			if got.State != tc.want {
				t.Errorf("it is %s, want %s", got.State, tc.want)
			}
		})
	}
}
