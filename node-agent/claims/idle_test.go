// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// keeping is a pool that keeps idle instances for a minute.
func keeping() v1alpha1.GPUDecision {
	d := divided()
	d.Strategy, d.KeepIdleSeconds = v1alpha1.MIGDynamic, 60
	return d
}

// released is a node on which a claim had the instance 1g.10gb at 6.
func released(t *testing.T, form v1alpha1.GPUDecision) *outside {
	t.Helper()
	o := newOutside([]gpu.GPU{h100(0)}, form)
	first := claim("first", device("gpu-0-mig-1g10gb-6"))
	o.mustPrepare(t, first)
	if err := o.preparer().Unprepare(t.Context(), string(first.UID)); err != nil {
		t.Fatal(err)
	}
	o.calls = nil
	return o
}

func (o *outside) placements() []string {
	list := []string{}
	for _, i := range o.node.GPUs[0].Instances {
		list = append(list, i.Profile+" at "+string(rune('0'+i.Start)))
	}
	slices.Sort(list)
	return list
}

func TestIdleInstances(t *testing.T) {
	const seventh, half = "gpu-0-mig-1g10gb-6", "gpu-0-mig-3g40gb-4"
	for _, tc := range []struct {
		name   string
		form   v1alpha1.GPUDecision
		change func(*outside)
		// next is the device of the next claim; "" where the node is only maintained.
		next    string
		created int
		want    []string
	}{
		{name: "nothing is kept where the pool does not say so", form: divided(), want: []string{}},
		{name: "an instance is kept", form: keeping(), want: []string{"1g.10gb at 6"}},
		{name: "it goes when its time is over", form: keeping(), change: func(o *outside) { o.clock.Step(time.Minute) }, want: []string{}},
		{name: "it goes when the pool stops keeping", form: keeping(), change: func(o *outside) { o.published.GPUs[0].Form.KeepIdleSeconds = 0 }, want: []string{}},
		{name: "it goes when the GPU is emptied", form: keeping(), change: func(o *outside) { o.published.GPUs[0].Form.Taint = v1alpha1.TaintExcluded }, want: []string{}},
		{name: "it goes when no pool holds the GPU", form: keeping(), change: func(o *outside) { o.published.GPUs = nil }, want: []string{}},
		{
			name: "it stays when the GPU gets a layout, which sees to it", form: keeping(),
			change: func(o *outside) { o.published.GPUs[0].Form.Strategy = v1alpha1.MIGStatic }, want: []string{"1g.10gb at 6"},
		},
		{name: "the next claim of its placement gets it", form: keeping(), next: seventh, want: []string{"1g.10gb at 6"}},
		{name: "a claim that overlaps has it destroyed", form: keeping(), next: half, created: 1, want: []string{"3g.40gb at 4"}},
		{name: "a claim beside it leaves it alone", form: keeping(), next: "gpu-0-mig-1g10gb-0", created: 1, want: []string{"1g.10gb at 0", "1g.10gb at 6"}},
		{
			name: "one that somebody destroyed is made again", form: keeping(), next: seventh, created: 1,
			change: func(o *outside) { o.node.GPUs[0].Instances = nil }, want: []string{"1g.10gb at 6"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := released(t, tc.form)
			if tc.change != nil {
				tc.change(o)
			}
			if tc.next == "" {
				if err := o.preparer().Maintain(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				o.mustPrepare(t, claim("next", device(tc.next)))
			}
			if diff := cmp.Diff(tc.want, o.placements()); diff != "" {
				t.Errorf("instances (-want +got):\n%s", diff)
			}
			created := 0
			for _, call := range o.calls {
				if strings.HasPrefix(call, "create GI") {
					created++
				}
			}
			if created != tc.created {
				t.Errorf("%d instances were made, want %d: %v", created, tc.created, o.calls)
			}
		})
	}
}

func TestAnIdleInstanceWithAProcessIsNotGivenAway(t *testing.T) {
	o := released(t, keeping())
	o.holders = []nvml.Holder{{PID: 7, GIID: o.node.GPUs[0].Instances[0].GIID}}
	_, err := o.preparer().Prepare(t.Context(), claim("next", device("gpu-0-mig-1g10gb-6")))
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("Prepare() = %v", err)
	}
}

func TestNoIdleInstanceSurvivesABoot(t *testing.T) {
	o := released(t, keeping())
	o.node.GPUs[0].Instances, o.node.GPUs[0].MIGMode = nil, gpu.MIGDisabled
	p := o.preparer()
	p.BootID = "next"
	if err := p.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(o.recorded.Idle) > 0 {
		t.Errorf("still recorded: %v", o.recorded.Idle)
	}
}

// Each call of a Prepare that takes over or destroys an idle instance fails once; whatever is left, the next Prepare
// succeeds and releasing it leaves what the pool keeps.
func TestFailuresAroundIdleInstances(t *testing.T) {
	for _, next := range []string{"gpu-0-mig-1g10gb-6", "gpu-0-mig-3g40gb-4"} {
		for at := range 40 {
			o := released(t, keeping())
			o.failAt = at
			second := claim("next", device(next))
			o.api["ns/next"] = second
			_, err := o.preparer().Prepare(t.Context(), second)
			if err == nil && at >= len(o.calls) {
				break
			}
			o.failAt = -1
			if err := o.preparer().Maintain(t.Context()); err != nil {
				t.Fatalf("%s, call %d: Maintain() = %v", next, at, err)
			}
			if _, err := o.preparer().Prepare(t.Context(), second); err != nil {
				t.Fatalf("%s, call %d: the next Prepare() = %v", next, at, err)
			}
			if len(o.node.GPUs[0].Instances) != 1 {
				t.Errorf("%s, call %d: instances are %v", next, at, o.placements())
			}
			o.clock.Step(time.Hour)
			if err := o.preparer().Unprepare(t.Context(), string(second.UID)); err != nil {
				t.Fatal(err)
			}
			o.clock.Step(time.Hour)
			if err := o.preparer().Maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(o.node.GPUs[0].Instances) != 0 || len(o.recorded.Idle) != 0 {
				t.Errorf("%s, call %d: left %v, recorded %v", next, at, o.placements(), o.recorded.Idle)
			}
		}
	}
}
