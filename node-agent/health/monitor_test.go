// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// rig is a monitor over hardware in memory.
type rig struct {
	monitor *Monitor
	clock   *testclock.FakeClock

	mu      sync.Mutex
	vitals  map[string]health.Vitals
	errs    map[string]error
	heard   chan nvml.Event
	opened  [][]string
	counted []string
	changes int
}

func newRig() *rig {
	r := &rig{
		clock:  testclock.NewFakeClock(time.Unix(1_000_000, 0)),
		vitals: map[string]health.Vitals{}, errs: map[string]error{}, heard: make(chan nvml.Event),
	}
	r.monitor = &Monitor{
		Hardware: r, Counter: r, Rules: health.DefaultRules(), Times: DefaultTimes(), Clock: r.clock, Log: logr.Discard(),
		Changed: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changes++
		},
	}
	return r
}

func (r *rig) Vitals(_ context.Context, uuid string) (health.Vitals, error) {
	return r.vitals[uuid], r.errs[uuid]
}

func (r *rig) Events(_ context.Context, uuids []string) (Events, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = append(r.opened, uuids)
	return r, nil
}

func (r *rig) Wait(time.Duration) (nvml.Event, bool, error) {
	event, open := <-r.heard
	if !open {
		return nvml.Event{}, false, errors.New("it is over")
	}
	return event, event.XID != 0, nil
}

func (*rig) Close() {}

func (r *rig) XID(uuid string, number uint64, class health.Class) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted = append(r.counted, fmt.Sprintf("%s %d %s", uuid, number, class))
}

func (r *rig) expect(t *testing.T, when string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for uuid, v := range r.monitor.Verdicts() {
		got[uuid] = string(v.State)
		if v.Sick() {
			got[uuid] += " " + v.Reason
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts %s (-want +got):\n%s", when, diff)
	}
}

func node(uuids ...string) gpu.Node {
	var n gpu.Node
	for _, uuid := range uuids {
		n.GPUs = append(n.GPUs, gpu.GPU{UUID: uuid})
	}
	return n
}

func sick(uuid string, err error) error {
	return &nvml.SickGPUError{UUID: uuid, Err: err}
}

func TestLooks(t *testing.T) {
	known := []string{"GPU-a", "GPU-b", "GPU-c"}
	for _, tc := range []struct {
		name string
		look gpu.Node
		err  error
		want map[string]string
	}{
		{
			name: "all answer", look: node(known...),
			want: map[string]string{"GPU-a": "Healthy", "GPU-b": "Healthy", "GPU-c": "Healthy"},
		},
		{
			name: "one hangs and one is lost", look: node("GPU-a"),
			err:  fmt.Errorf("looking: %w", errors.Join(sick("GPU-b", fmt.Errorf("b: %w", nvml.ErrHangs)), sick("GPU-c", nvml.ErrLost))),
			want: map[string]string{"GPU-a": "Healthy", "GPU-b": "Suspect NVMLHangs", "GPU-c": "Suspect OffBus"},
		},
		{
			name: "one is not shown any more", look: node("GPU-a", "GPU-b"),
			want: map[string]string{"GPU-a": "Healthy", "GPU-b": "Healthy", "GPU-c": "Suspect OffBus"},
		},
		{
			name: "NVML hangs as a whole", look: node(known...), err: fmt.Errorf("looking: %w", nvml.ErrHangs),
			want: map[string]string{"GPU-a": "Suspect NVMLHangs", "GPU-b": "Suspect NVMLHangs", "GPU-c": "Suspect NVMLHangs"},
		},
		{name: "the driver is away", err: nvml.ErrFailed, want: map[string]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig()
			r.monitor.Looked(tc.look, tc.err, known)
			r.expect(t, "after the look", tc.want)
		})
	}
}

func TestPollsSeeIllnessAndRecovery(t *testing.T) {
	r := newRig()
	r.monitor.Looked(node("GPU-a"), nil, nil)
	r.expect(t, "at first", map[string]string{"GPU-a": "Healthy"})
	for _, step := range []struct {
		when    string
		vitals  health.Vitals
		err     error
		after   time.Duration
		want    string
		changes int
	}{
		{when: "while it is well", vitals: health.Vitals{Recovery: health.RecoveryNone}, want: "Healthy", changes: 0},
		{when: "when a reset is needed", vitals: health.Vitals{Recovery: health.RecoveryReset}, want: "Suspect RecoveryNeeded", changes: 1},
		{when: "after the reset", vitals: health.Vitals{Recovery: health.RecoveryNone}, want: "Healthy", changes: 2},
		{when: "when it hangs", err: nvml.ErrHangs, want: "Suspect NVMLHangs", changes: 3},
		{when: "when it answers", want: "Healthy", changes: 4},
		{when: "when it is gone", err: fmt.Errorf("x: %w", nvml.ErrLost), want: "Suspect OffBus", changes: 5},
		{when: "after a while", err: nvml.ErrLost, after: 30 * time.Second, want: "Lost OffBus", changes: 6},
		{when: "when its vitals cannot be read for another reason", err: errors.New("x"), want: "Lost OffBus", changes: 6},
		{when: "when it is back", want: "Healthy", changes: 7},
	} {
		r.clock.Step(step.after)
		r.vitals["GPU-a"], r.errs["GPU-a"] = step.vitals, step.err
		r.monitor.poll(t.Context())
		r.expect(t, step.when, map[string]string{"GPU-a": step.want})
		if r.changes != step.changes {
			t.Errorf("%s the loop was called %d times, want %d", step.when, r.changes, step.changes)
		}
	}
}

func TestAGPUThatAnswersAgainIsLookedAt(t *testing.T) {
	r := newRig()
	r.monitor.Looked(node(), sick("GPU-a", nvml.ErrHangs), []string{"GPU-a"})
	r.expect(t, "while it hangs", map[string]string{"GPU-a": "Suspect NVMLHangs"})
	r.monitor.poll(t.Context())
	r.expect(t, "before it is looked at", map[string]string{"GPU-a": "Suspect NVMLHangs"})
	if r.changes != 1 {
		t.Errorf("the loop was called %d times, want once", r.changes)
	}
	r.monitor.Looked(node("GPU-a"), nil, nil)
	r.expect(t, "after the look", map[string]string{"GPU-a": "Healthy"})
	r.monitor.Forget(nil)
	r.expect(t, "when the node has it no more", map[string]string{})
}

func TestReportsAreHeard(t *testing.T) {
	r := newRig()
	r.monitor.Looked(node("GPU-b", "GPU-a"), nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.monitor.Run(ctx)
	}()
	r.heard <- nvml.Event{UUID: "GPU-a", XID: 31}
	r.heard <- nvml.Event{UUID: "GPU-b", XID: 48}
	r.heard <- nvml.Event{} // it has come back for more, so the others are done
	r.expect(t, "after the reports", map[string]string{"GPU-a": "Healthy", "GPU-b": "Suspect XID"})
	// With another set of GPUs it listens anew.
	r.monitor.Looked(node("GPU-a"), nil, nil)
	r.heard <- nvml.Event{}
	r.heard <- nvml.Event{}
	cancel()
	close(r.heard)
	<-over
	if diff := cmp.Diff([]string{"GPU-a 31 Application", "GPU-b 48 Hardware"}, r.counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if len(r.opened) < 2 {
		t.Fatalf("it listened to %v", r.opened)
	}
	if diff := cmp.Diff([][]string{{"GPU-a", "GPU-b"}, {"GPU-a"}}, r.opened[:2]); diff != "" {
		t.Errorf("listened to (-want +got):\n%s", diff)
	}
	if r.changes == 0 {
		t.Error("the loop was not called")
	}
}

func TestResumeCountsOnce(t *testing.T) {
	r := newRig()
	since := ptr.To(metav1.NewTime(r.clock.Now()))
	before := []v1alpha1.GPUStatus{{UUID: "GPU-a", Health: v1alpha1.GPUHealth{State: "Suspect", Reason: "XID", XID: 48, Since: since}}}
	r.monitor.Resume(before)
	r.monitor.Looked(node("GPU-a"), nil, nil)
	r.expect(t, "after a restart of the agent", map[string]string{"GPU-a": "Suspect XID"})
	r.clock.Step(time.Hour)
	before[0].Health.Since = ptr.To(metav1.NewTime(r.clock.Now()))
	r.monitor.Resume(before)
	r.expect(t, "later", map[string]string{"GPU-a": "Healthy"})
}
