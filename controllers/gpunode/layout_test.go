// SPDX-License-Identifier: Apache-2.0

package gpunode_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

// layouts are the decided instances of each GPU, with the taint.
func (w *world) layouts() []string {
	w.t.Helper()
	var layouts []string
	for _, d := range w.node().Decisions() {
		var parts []string
		for _, i := range d.Instances {
			parts = append(parts, fmt.Sprintf("%s@%d", i.Profile, *i.Start))
		}
		if d.Taint != "" {
			parts = append(parts, string(d.Taint))
		}
		layouts = append(layouts, strings.Join(parts, " "))
	}
	return layouts
}

func (w *world) wantLayouts(layouts ...string) {
	w.t.Helper()
	if diff := cmp.Diff(layouts, w.layouts()); diff != "" {
		w.t.Fatalf("layouts (-want +got):\n%s", diff)
	}
}

// edit changes the spec of pool p.
func (w *world) edit(change func(*v1alpha1.GPUPoolSpec)) {
	w.t.Helper()
	pool := &v1alpha1.GPUPool{}
	if err := w.c.Get(w.t.Context(), types.NamespacedName{Name: "p"}, pool); err != nil {
		w.t.Fatal(err)
	}
	change(&pool.Spec)
	w.update(pool)
}

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

const twoHalves = "3g.40gb@0 3g.40gb@4"

// divided is a world whose GPUs are divided into two halves each.
func divided(t *testing.T, gpus int) *world {
	t.Helper()
	w := start(t, nil, builders.MakeGPUNode("n", gpus).Obj(), builders.MakePool("p").Static("3g.40gb", 2).Obj())
	w.reconcile() // decides the form
	w.reconcile() // and what was planned for it
	w.publish()
	return w
}

// half has one half of each GPU divided further.
func half(spec *v1alpha1.GPUPoolSpec) {
	spec.Partitioning.MIG.Layouts[0].Instances = []v1alpha1.MIGCount{{Profile: "3g.40gb", Count: 1}, {Profile: "1g.10gb", Count: 3}}
}

func TestALayoutIsRolledOutGPUByGPU(t *testing.T) {
	w := divided(t, 2)
	w.reconcile()
	w.wantLayouts(twoHalves, twoHalves)
	w.edit(half)
	w.reconcile()
	w.wantLayouts(twoHalves+" LayoutChanged", twoHalves)
	w.publish()
	w.reconcile()
	w.pass(settle)
	w.reconcile()
	changed := w.layouts()
	if !strings.HasSuffix(changed[0], "LayoutChanged") || strings.HasPrefix(changed[0], twoHalves) {
		t.Fatalf("want the first GPU decided anew and still tainted, got %q", changed)
	}
	w.publish()
	w.reconcile()
	if got := w.layouts(); strings.Contains(got[0], "Changed") || got[1] != twoHalves {
		t.Fatalf("want the first GPU released before the second begins, got %q", got)
	}
	w.publish()
	w.reconcile()
	if got := w.layouts(); got[1] != twoHalves+" LayoutChanged" {
		t.Errorf("want the second GPU to begin, got %q", got)
	}
}

func TestAnInstanceInUseStays(t *testing.T) {
	w := divided(t, 1)
	if err := w.c.Create(t.Context(), builders.Allocated("tenant", "n", "gpu-0-mig-3g40gb-0", "")); err != nil {
		t.Fatal(err)
	}
	w.edit(half)
	w.reconcile()
	w.publish()
	w.reconcile()
	w.pass(settle)
	w.reconcile()
	w.wantLayouts("3g.40gb@0 1g.10gb@4 1g.10gb@5 1g.10gb@6 LayoutChanged")
}

func TestAnInstanceThatOnlyTheAPIServerKnowsToBeInUseStays(t *testing.T) {
	live := fakeClient(t, builders.Allocated("tenant", "n", "gpu-0-mig-3g40gb-0", ""), builders.Allocated("other", "n", "gpu-0-mig-3g40gb-4", ""))
	w := start(t, live, builders.MakeGPUNode("n", 1).Obj(), builders.MakePool("p").Static("3g.40gb", 2).Obj())
	w.reconcile()
	w.reconcile()
	w.publish()
	w.edit(func(spec *v1alpha1.GPUPoolSpec) {
		spec.Partitioning.MIG.Layouts[0].Instances = []v1alpha1.MIGCount{{Profile: "1g.10gb", Count: 7}}
	})
	w.reconcile()
	w.publish()
	w.reconcile()
	w.pass(settle)
	if again := w.reconcile(); again == 0 {
		t.Error("want to look again, since the cache will know soon")
	}
	w.wantLayouts(twoHalves + " LayoutChanged")
}

func TestAScheduleChangesRatiosOnTime(t *testing.T) {
	pool := builders.MakePool("p").Obj()
	pool.Spec.TimeZone = "UTC"
	pool.Spec.Schedules = []v1alpha1.Schedule{{
		Name: "morning", Start: "01:00", End: "02:00", LeadSeconds: ptr.To[int32](600),
		Override: v1alpha1.ScheduleOverride{Overcommit: v1alpha1.OvercommitOverride{MemoryPercent: 150}},
	}}
	w := start(t, nil, builders.MakeGPUNode("n", 1).Obj(), pool) // at midnight
	want := func(percent int32) {
		t.Helper()
		if d := w.node().Decisions()[0]; d.MemoryPercent != percent || d.Taint != "" {
			t.Errorf("want %d %% without a taint, got %d %% %s", percent, d.MemoryPercent, d.Taint)
		}
	}
	if again := w.reconcile(); again != 50*time.Minute {
		t.Errorf("want to come back when GPUs would drain, got %s", again)
	}
	want(100)
	w.publish()
	w.pass(50 * time.Minute)
	if again := w.reconcile(); again != 10*time.Minute {
		t.Errorf("want to come back at 01:00, got %s", again)
	}
	want(100)
	w.pass(10 * time.Minute)
	w.reconcile()
	want(150)
	w.pass(time.Hour)
	w.reconcile()
	want(100)
}
