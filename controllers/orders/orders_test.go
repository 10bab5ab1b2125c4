// SPDX-License-Identifier: Apache-2.0

package orders_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/layout/rollout"
	"github.com/sluice-gpu/sluice/internal/rollouts"
)

// plan has one order, for the GPU of node n.
func plan(step rollout.Step) rollouts.Plan {
	return rollouts.Plan{
		Orders: map[string]assign.Orders{"n": {"GPU-1": {Step: step, Taint: v1alpha1.TaintLayoutChanged}}},
		Reason: v1alpha1.ReasonProgressing,
	}
}

// told are the names in the news so far.
func told(news <-chan event.GenericEvent) []string {
	var names []string
	for {
		select {
		case e := <-news:
			names = append(names, e.Object.GetName())
		default:
			return names
		}
	}
}

func TestAChangeThatHasBegunCountsUntilItIsOver(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key := rollouts.Key{Node: "n", UUID: "GPU-1"}
	b := orders.NewBook()
	for i, tc := range []struct {
		step rollout.Step
		want map[rollouts.Key]time.Time
	}{
		{step: rollout.StepWait},
		{step: rollout.StepBegin, want: map[rollouts.Key]time.Time{key: begin.Add(time.Minute)}},
		{step: rollout.StepSettle, want: map[rollouts.Key]time.Time{key: begin.Add(time.Minute)}},
		{step: rollout.StepApply, want: map[rollouts.Key]time.Time{key: begin.Add(time.Minute)}},
		{step: rollout.StepRelease},
		{step: rollout.StepDrain},
	} {
		b.Put(t.Context(), "p", plan(tc.step), begin.Add(time.Duration(i)*time.Minute))
		if diff := cmp.Diff(tc.want, b.Begun("p"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("begun after %s (-want +got):\n%s", tc.step, diff)
		}
	}
}

func TestOnlyNewsAreTold(t *testing.T) {
	b := orders.NewBook()
	for _, tc := range []struct {
		name         string
		plan         rollouts.Plan
		nodes, pools []string
	}{
		{name: "a first plan", plan: plan(rollout.StepBegin), nodes: []string{"n"}, pools: []string{"p"}},
		{name: "the same plan", plan: plan(rollout.StepBegin)},
		{name: "another order", plan: plan(rollout.StepDrain), nodes: []string{"n"}},
		{
			name: "another report", plan: func() rollouts.Plan {
				p := plan(rollout.StepDrain)
				p.Message = "held by team/pod"
				return p
			}(), pools: []string{"p"},
		},
	} {
		b.Put(t.Context(), "p", tc.plan, time.Time{})
		if diff := cmp.Diff(tc.nodes, told(b.Nodes())); diff != "" {
			t.Errorf("%s: nodes told (-want +got):\n%s", tc.name, diff)
		}
		if diff := cmp.Diff(tc.pools, told(b.Pools())); diff != "" {
			t.Errorf("%s: pools told (-want +got):\n%s", tc.name, diff)
		}
	}
	b.Forget("p")
	if got := b.Orders("n"); len(got) != 0 {
		t.Errorf("a forgotten pool has orders: %v", got)
	}
}
