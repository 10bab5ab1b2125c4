// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/test/builders"
)

type option func(*rollout.GPU)

func at(profile string, start int) gpu.Placement {
	return gpu.Placement{Profile: profile, Start: start}
}

func begin() time.Time { return time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC) }

// makeGPU is an H100 with two idle instances of 3g.40gb that is to have one 7g.80gb.
func makeGPU(t *testing.T, minor int32, options ...option) rollout.GPU {
	t.Helper()
	g := rollout.GPU{
		Node: "a", UUID: "GPU-" + string('0'+minor), Minor: minor,
		Board: layout.BoardOf(builders.Boards(t)["h100-80gb"]), Wanted: []layout.Count{{Profile: "7g.80gb", Count: 1}},
		Decided: []gpu.Placement{at("3g.40gb", 0), at("3g.40gb", 4)}, Offered: true,
		Instances: []layout.Instance{{Placement: at("3g.40gb", 0)}, {Placement: at("3g.40gb", 4)}},
	}
	for _, o := range options {
		o(&g)
	}
	return g
}

func heldBy(start int, name string) option {
	return func(g *rollout.GPU) {
		for i := range g.Instances {
			if g.Instances[i].Start == start {
				g.Instances[i].InUse = true
				g.Holders = append(g.Holders, rollout.Holder{Placement: g.Instances[i].Placement, Name: name, Evictable: name != "process dcgm (PID 7)"})
			}
		}
	}
}

func wanted(counts ...layout.Count) option { return func(g *rollout.GPU) { g.Wanted = counts } }

func draining(g *rollout.GPU) { g.Draining = begin() }

func settled(g *rollout.GPU) { g.Draining, g.Settled = begin(), true }

func decided(g *rollout.GPU) { g.Decided = []gpu.Placement{at("7g.80gb", 0)} }

func divided(g *rollout.GPU) { g.Instances = []layout.Instance{{Placement: at("7g.80gb", 0)}} }

func later(g *rollout.GPU) { g.NotBefore = begin().Add(time.Hour) }

// reform has the GPU become whole.
func reform(g *rollout.GPU) {
	g.Reform, g.Whole, g.Form, g.Wanted = true, true, "whole, shared by MPS", nil
}

// reformed is a GPU whose new form is decided.
func reformed(g *rollout.GPU) {
	g.Whole, g.Form, g.Wanted, g.Decided = true, "whole, shared by MPS", nil, nil
}

func notOffered(g *rollout.GPU) { g.Offered = false }

func held(name string) option {
	return func(g *rollout.GPU) {
		g.Held = true
		g.Holders = append(g.Holders, rollout.Holder{Name: name, Evictable: true})
	}
}

func fresh(g *rollout.GPU) { g.Decided, g.Instances, g.Offered = nil, nil, false }

// TestOneGPU says what is done with a GPU that is alone in its pool.
func TestOneGPU(t *testing.T) {
	whole := []gpu.Placement{at("7g.80gb", 0)}
	wait := rollout.Policy{MaxUnavailable: 1}
	evict := rollout.Policy{MaxUnavailable: 1, Evict: true, Grace: 10 * time.Minute}
	pod := rollout.Holder{Placement: at("3g.40gb", 4), Name: "team/train-0", Evictable: true}
	cases := []struct {
		name    string
		options []option
		policy  rollout.Policy
		after   time.Duration
		want    rollout.Verdict
	}{
		{
			name: "a GPU that is as wanted is left alone", options: []option{decided, divided}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepDone},
		},
		{
			name: "a change begins with a taint", policy: wait,
			want: rollout.Verdict{Step: rollout.StepBegin, Message: "GPU 0 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb"},
		},
		{
			name: "a GPU that is new is divided at once", options: []option{fresh}, policy: rollout.Policy{},
			want: rollout.Verdict{Step: rollout.StepApply, Target: whole, Message: "GPU 0 of node a is to be divided into 1 × 7g.80gb"},
		},
		{
			name: "one that is not offered, but used, is not divided under its user", policy: wait,
			options: []option{heldBy(0, "process dcgm (PID 7)"), func(g *rollout.GPU) { g.Offered = false }},
			want:    rollout.Verdict{Step: rollout.StepBegin, Message: "GPU 0 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb"},
		},
		{
			name: "instances that only come are made at once", policy: rollout.Policy{},
			options: []option{heldBy(4, "team/train-0"), func(g *rollout.GPU) {
				g.Instances, g.Decided = g.Instances[1:], g.Decided[1:]
			}, wanted(layout.Count{Profile: "3g.40gb", Count: 1}, layout.Count{Profile: "4g.40gb", Count: 1})},
			want: rollout.Verdict{
				Step: rollout.StepApply, Target: []gpu.Placement{at("4g.40gb", 0), at("3g.40gb", 4)},
				Message: "GPU 0 of node a is to be divided into 1 × 3g.40gb, 1 × 4g.40gb",
			},
		},
		{
			name: "no change begins where none is let", policy: rollout.Policy{},
			want: rollout.Verdict{Step: rollout.StepWait, Message: "GPU 0 of node a waits to be divided into 1 × 7g.80gb: maxUnavailable is 0"},
		},
		{
			name: "the holder of what has to go is waited for", options: []option{draining, heldBy(4, "team/train-0")}, policy: wait, after: time.Hour,
			want: rollout.Verdict{Step: rollout.StepDrain, Message: "GPU 0 of node a waits: 3g.40gb at 4 is held by team/train-0"},
		},
		{
			name: "a holder that nobody knows is waited for too", options: []option{draining, heldBy(0, "x"), func(g *rollout.GPU) { g.Holders = nil }}, policy: evict, after: time.Hour,
			want: rollout.Verdict{Step: rollout.StepDrain, Message: "GPU 0 of node a waits: 3g.40gb at 0 is held by somebody unknown"},
		},
		{
			name: "tenants are given their time before they are evicted", options: []option{draining, heldBy(4, "team/train-0")}, policy: evict, after: 10*time.Minute - 1,
			want: rollout.Verdict{
				Step: rollout.StepDrain, Again: begin().Add(10 * time.Minute),
				Message: "GPU 0 of node a waits: 3g.40gb at 4 is held by team/train-0",
			},
		},
		{
			name: "then they are evicted", options: []option{draining, heldBy(4, "team/train-0")}, policy: evict, after: 10 * time.Minute,
			want: rollout.Verdict{
				Step: rollout.StepEvict, Evict: []rollout.Holder{pod},
				Message: "GPU 0 of node a waits: 3g.40gb at 4 is held by team/train-0",
			},
		},
		{
			name: "a process that is no pod's is named, not evicted", policy: evict, after: time.Hour,
			options: []option{draining, heldBy(0, "process dcgm (PID 7)"), heldBy(4, "team/train-0")},
			want: rollout.Verdict{
				Step: rollout.StepEvict, Evict: []rollout.Holder{pod},
				Message: "GPU 0 of node a waits: 3g.40gb at 0 is held by process dcgm (PID 7), 3g.40gb at 4 is held by team/train-0",
			},
		},
		{
			name: "many tenants of one instance are counted", policy: wait,
			options: []option{draining, heldBy(4, "t/a"), heldBy(4, "t/b"), heldBy(4, "t/c"), heldBy(4, "t/d")},
			want:    rollout.Verdict{Step: rollout.StepDrain, Message: "GPU 0 of node a waits: 3g.40gb at 4 is held by t/a, t/b, t/c and 1 more"},
		},
		{
			name: "tenants that may stay are not waited for", policy: wait,
			options: []option{settled, heldBy(4, "team/train-0"), wanted(layout.Count{Profile: "3g.40gb", Count: 1}, layout.Count{Profile: "1g.10gb", Count: 1})},
			want: rollout.Verdict{
				Step: rollout.StepApply, Target: []gpu.Placement{at("1g.10gb", 0), at("3g.40gb", 4)},
				Message: "GPU 0 of node a is to be divided into 1 × 3g.40gb, 1 × 1g.10gb",
			},
		},
		{
			name: "an empty GPU waits until its taint is published", options: []option{draining}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepSettle, Message: "GPU 0 of node a is empty where it has to be, and waits for its node's agent to take it from the scheduler"},
		},
		{
			name: "then it is divided", options: []option{settled}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepApply, Target: whole, Message: "GPU 0 of node a is to be divided into 1 × 7g.80gb"},
		},
		{
			name: "a GPU drains for a layout that comes later", options: []option{later}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepBegin, Message: "GPU 0 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb"},
		},
		{
			name: "it is not divided before the layout's time", options: []option{later, settled}, policy: wait,
			want: rollout.Verdict{
				Step: rollout.StepReady, Again: begin().Add(time.Hour),
				Message: "GPU 0 of node a is ready to be divided into 1 × 7g.80gb, and waits for 2026-11-30T23:00:00Z",
			},
		},
		{
			name: "nor is a GPU that is new", options: []option{later, fresh}, policy: wait,
			want: rollout.Verdict{
				Step: rollout.StepReady, Again: begin().Add(time.Hour),
				Message: "GPU 0 of node a is ready to be divided into 1 × 7g.80gb, and waits for 2026-11-30T23:00:00Z",
			},
		},
		{
			name: "then it is", options: []option{later, settled}, policy: wait, after: time.Hour,
			want: rollout.Verdict{Step: rollout.StepApply, Target: whole, Message: "GPU 0 of node a is to be divided into 1 × 7g.80gb"},
		},
		{
			name: "the agent is given time to do it", options: []option{settled, decided}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepApplying, Message: "GPU 0 of node a is being divided into 1 × 7g.80gb"},
		},
		{
			name: "what the agent cannot do is said", options: []option{settled, decided, func(g *rollout.GPU) { g.Failure = "insufficient resources" }}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepApplying, Message: "GPU 0 of node a could not be divided: insufficient resources"},
		},
		{
			name: "an instance that somebody else made and uses is named", options: []option{decided, heldBy(0, "process dcgm (PID 7)")}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepApplying, Message: "GPU 0 of node a is not divided as decided: 3g.40gb at 0 is held by process dcgm (PID 7)"},
		},
		{
			name: "a GPU that is done takes tenants again", options: []option{settled, decided, divided}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepRelease, Message: "GPU 0 of node a is divided into 1 × 7g.80gb"},
		},
		{
			name: "a change that is not wanted any more is given up", options: []option{draining, wanted(layout.Count{Profile: "3g.40gb", Count: 2})}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepRelease, Message: "GPU 0 of node a is divided into 2 × 3g.40gb"},
		},
		{
			name: "a layout that the board cannot hold changes nothing", options: []option{wanted(layout.Count{Profile: "7g.80gb", Count: 2})}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepRefused, Message: "GPU 0 of node a stays as it is: H100 cannot be divided into 2 × 7g.80gb: " +
				"it holds at most 1 × 7g.80gb; what fits: 1 × 7g.80gb; or 1 × 3g.40gb, 1 × 4g.40gb; or 2 × 3g.40gb"},
		},
		{
			name: "a decided layout that the board cannot hold any more is not waited for", policy: wait,
			options: []option{decided, func(g *rollout.GPU) { g.Board.Profiles = g.Board.Profiles[:1] }},
			want: rollout.Verdict{Step: rollout.StepRefused, Message: "GPU 0 of node a stays as it is: H100 cannot be divided into 1 × 7g.80gb: " +
				"it has no MIG profile 7g.80gb, it has 1g.10gb; what fits: 1 × 1g.10gb"},
		},
		{
			name: "a layout that stops being valid gives the change up", options: []option{settled, func(g *rollout.GPU) { g.Problem = "there is none" }}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepRelease, Message: "GPU 0 of node a stays as it is: there is none"},
		},
		{
			name: "another form begins with a taint", options: []option{reform}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepBegin, Message: "GPU 0 of node a takes no new tenants: it is to become whole, shared by MPS"},
		},
		{
			name: "another form waits for everybody on the GPU", options: []option{reform, settled, held("team/train-0"), held("team/train-1")}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepDrain, Message: "GPU 0 of node a waits: it is held by team/train-0 and team/train-1"},
		},
		{
			name: "who has a GPU that is to change is evicted in the end", options: []option{reform, settled, held("team/train-0")}, policy: evict, after: time.Hour,
			want: rollout.Verdict{
				Step: rollout.StepEvict, Evict: []rollout.Holder{{Name: "team/train-0", Evictable: true}},
				Message: "GPU 0 of node a waits: it is held by team/train-0",
			},
		},
		{
			name: "an empty GPU changes its form once its taint is published", options: []option{reform, settled}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepApply, Message: "GPU 0 of node a is to become whole, shared by MPS"},
		},
		{
			name: "a form with a layout comes with its placements", policy: wait,
			options: []option{settled, func(g *rollout.GPU) { g.Reform, g.Form, g.Decided, g.Instances = true, "divided", nil, nil }},
			want:    rollout.Verdict{Step: rollout.StepApply, Target: whole, Message: "GPU 0 of node a is to become divided with 1 × 7g.80gb"},
		},
		{
			name: "a new form is in change until the agent offers it", options: []option{reformed, settled}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepApplying, Message: "GPU 0 of node a is becoming whole, shared by MPS"},
		},
		{
			name: "what keeps the agent from a new form is said", options: []option{reformed, settled, func(g *rollout.GPU) { g.Failure = "MIG mode is on" }}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepApplying, Message: "GPU 0 of node a could not become whole, shared by MPS: MIG mode is on"},
		},
		{
			name: "then the GPU takes tenants again", options: []option{reformed, settled, func(g *rollout.GPU) { g.Formed = true }}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepRelease, Message: "GPU 0 of node a is whole, shared by MPS"},
		},
		{
			name: "a GPU without a layout that is not in change is left alone", options: []option{reformed, heldBy(0, "t/a")}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepDone},
		},
		{
			name: "a GPU that is away is left alone", options: []option{draining, func(g *rollout.GPU) { g.Away = "is lost" }}, policy: wait,
			want: rollout.Verdict{Step: rollout.StepAway, Message: "GPU 0 of node a is lost"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			g := makeGPU(t, 0, tc.options...)
			g.Board.Product = "H100"
			tc.want.Node, tc.want.UUID = g.Node, g.UUID
			got := rollout.Decide([]rollout.GPU{g}, tc.policy, begin().Add(tc.after)).Verdicts
			if diff := cmp.Diff([]rollout.Verdict{tc.want}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheBound says which GPUs of a pool are next.
func TestTheBound(t *testing.T) {
	const (
		begins, waits, drains, applies = rollout.StepBegin, rollout.StepWait, rollout.StepDrain, rollout.StepApply
	)
	onNode := func(node string) option { return func(g *rollout.GPU) { g.Node = node } }
	away := func(g *rollout.GPU) { g.Away = "is excluded: fan" }
	broken := func(g *rollout.GPU) { g.Failure = "insufficient resources" }
	both := []option{heldBy(0, "t/a"), heldBy(4, "t/b")}
	cases := []struct {
		name    string
		gpus    [][]option
		most    int
		want    []rollout.Step
		message string
	}{
		{
			name: "one after another", gpus: [][]option{nil, nil, nil}, most: 1, want: []rollout.Step{begins, waits, waits},
			message: "0 of 3 GPUs are as wanted, 1 in change, 2 waiting; " +
				"GPU 0 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb",
		},
		{
			name: "as many at once as the pool lets", gpus: [][]option{nil, nil, nil}, most: 2, want: []rollout.Step{begins, begins, waits},
			message: "0 of 3 GPUs are as wanted, 2 in change, 1 waiting; " +
				"GPU 0 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb; " +
				"GPU 1 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb",
		},
		{
			name: "GPUs without tenants come first", gpus: [][]option{both, {heldBy(0, "t/c")}, nil}, most: 2, want: []rollout.Step{waits, begins, begins},
			message: "0 of 3 GPUs are as wanted, 2 in change, 1 waiting; " +
				"GPU 1 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb; " +
				"GPU 2 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb",
		},
		{
			name: "of equal ones the first node's", gpus: [][]option{{onNode("b")}, {onNode("a")}}, most: 1, want: []rollout.Step{waits, begins},
			message: "0 of 2 GPUs are as wanted, 1 in change, 1 waiting; " +
				"GPU 1 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb",
		},
		{
			name: "one that waits for its tenants holds the others up, and says who they are", gpus: [][]option{append(both, draining), nil}, most: 1,
			want: []rollout.Step{drains, waits},
			message: "0 of 2 GPUs are as wanted, 1 in change, 1 waiting; " +
				"GPU 0 of node a waits: 3g.40gb at 0 is held by t/a, 3g.40gb at 4 is held by t/b",
		},
		{
			name: "one that is done is out of use until its taint is gone", gpus: [][]option{{settled, decided, divided}, nil}, most: 1,
			want: []rollout.Step{rollout.StepRelease, waits},
			message: "0 of 2 GPUs are as wanted, 1 in change, 1 waiting; " +
				"GPU 0 of node a is divided into 1 × 7g.80gb",
		},
		{
			name: "a layout that fails stops at as many GPUs", gpus: [][]option{{decided, broken}, nil}, most: 1,
			want: []rollout.Step{rollout.StepApplying, waits},
			message: "0 of 2 GPUs are as wanted, 1 in change, 1 waiting; " +
				"GPU 0 of node a could not be divided: insufficient resources",
		},
		{
			name: "a GPU that fails does not hold up its own way to another layout", most: 1, want: []rollout.Step{begins, waits},
			gpus: [][]option{{broken}, nil},
			message: "0 of 2 GPUs are as wanted, 1 in change, 1 waiting; " +
				"GPU 0 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb",
		},
		{
			name: "GPUs that are not offered change their form beside others", most: 1, want: []rollout.Step{begins, begins, waits},
			gpus: [][]option{{reform, notOffered}, {reform}, {reform}},
			message: "0 of 3 GPUs are as wanted, 2 in change, 1 waiting; " +
				"GPU 0 of node a takes no new tenants: it is to become whole, shared by MPS; " +
				"GPU 1 of node a takes no new tenants: it is to become whole, shared by MPS",
		},
		{
			name: "one that is away holds nobody up", gpus: [][]option{{draining, away}, nil, {decided, divided}}, most: 1,
			want: []rollout.Step{rollout.StepAway, begins, rollout.StepDone},
			message: "1 of 3 GPUs are as wanted, 1 in change, 1 away; " +
				"GPU 1 of node a takes no new tenants: it is to be divided into 1 × 7g.80gb",
		},
		{
			name: "new ones do not wait for others", gpus: [][]option{append(both, draining), {fresh}, {fresh}}, most: 1,
			want: []rollout.Step{drains, applies, applies},
			message: "0 of 3 GPUs are as wanted, 3 in change; " +
				"GPU 0 of node a waits: 3g.40gb at 0 is held by t/a, 3g.40gb at 4 is held by t/b; " +
				"GPU 1 of node a is to be divided into 1 × 7g.80gb; GPU 2 of node a is to be divided into 1 × 7g.80gb",
		},
		{name: "all is done and nothing is to be said", gpus: [][]option{{decided, divided}}, most: 1, want: []rollout.Step{rollout.StepDone}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var gpus []rollout.GPU
			for i, options := range tc.gpus {
				gpus = append(gpus, makeGPU(t, int32(i), options...))
			}
			result := rollout.Decide(gpus, rollout.Policy{MaxUnavailable: tc.most}, begin())
			var got []rollout.Step
			for _, v := range result.Verdicts {
				got = append(got, v.Step)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.message, result.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
