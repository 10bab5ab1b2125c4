// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/cgroups"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/hook"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/cgroupfs"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

const (
	gib    = 1 << 30
	first  = cgroupfs.Pod + "/cri-containerd-a.scope"
	second = cgroupfs.Pod + "/cri-containerd-b.scope"
	other  = cgroupfs.Other + "/cri-containerd-c.scope"
)

// pages are the limits of shares as their pages say, by claim; a claim without one is asked for its grant.
type pages map[string]uint64

func (p pages) Words(claimUID string, _ int) (limits.Words, error) {
	limit, there := p[claimUID]
	if !there {
		return limits.Words{}, limits.ErrNoShare
	}
	return limits.Words{MemoryLimit: limit}, nil
}

// rig is a keeper over a fake driver.
type rig struct {
	*cgroups.Keeper
	node  *fakenode.Node
	fs    *cgroupfs.FS
	store *checkpoint.Store
	clock *testclock.FakeClock
	pages pages
	gpu   string
	facts checkpoint.Facts
	door  *nvml.Door
}

func newRig(t *testing.T, version, backend string) *rig {
	t.Helper()
	r := &rig{fs: cgroupfs.New(t, backend == "dmem"), clock: testclock.NewFakeClock(time.Unix(1_000_000, 0)), pages: pages{}}
	r.node = fakenode.With(t, fakenode.Driver{Version: version, Cgroups: r.fs.Root, Limits: backend}, fakenode.Boards{Board: "h200-141gb", Count: 1})
	var err error
	if r.store, err = checkpoint.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if r.door, err = nvml.Open(r.node.Library); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.door.Close)
	look, err := r.door.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.gpu, r.facts = look.GPUs[0].UUID, checkpoint.FactsOf(look.GPUs[0], look.DriverVersion)
	r.publish(t, software(""), 150)
	r.restart()
	return r
}

// restart has another agent keep the limits.
func (r *rig) restart() {
	r.Keeper = cgroups.New(cgroups.Options{
		Root: r.fs.Root, Proc: r.fs.Proc, Hardware: r.door, Records: r.store, Shares: r.pages, Clock: r.clock, Log: logr.Discard(),
	})
}

func software(mode v1alpha1.MemoryLimits) v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware, MemoryLimits: mode}
}

func (r *rig) publish(t *testing.T, form v1alpha1.GPUDecision, percent int32) {
	t.Helper()
	form.UUID, form.MemoryPercent = r.gpu, percent
	published := checkpoint.Published{GPUs: []checkpoint.PublishedGPU{{Form: form, Facts: r.facts}}}
	if err := r.store.SavePublished(published); err != nil {
		t.Fatal(err)
	}
}

// prepare records claims of 12 GiB as prepared and held by the driver.
func (r *rig) prepare(t *testing.T, backend v1alpha1.LimitsBackend, must bool, uids ...string) {
	t.Helper()
	claims, err := r.store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range uids {
		claims.Claims[uid] = checkpoint.Claim{UID: uid, State: checkpoint.Prepared, Results: []checkpoint.Result{{
			GPU: r.gpu, Shared: true, Enforced: true, Memory: 12 * gib, LimitsBackend: backend, MustHold: must,
		}}}
	}
	if err := r.store.SaveClaims(claims); err != nil {
		t.Fatal(err)
	}
}

// starts has a process be in a container's cgroup, and asks whether the container may start with claims.
func (r *rig) starts(t *testing.T, pid int, cgroup string, uids ...string) error {
	t.Helper()
	r.fs.Put(t, pid, cgroup)
	for _, uid := range uids {
		if err := r.Admit(t.Context(), hook.Question{PID: pid, Claim: uid}); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) mustStart(t *testing.T, pid int, cgroup string, uids ...string) {
	t.Helper()
	if err := r.starts(t, pid, cgroup, uids...); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) sync(t *testing.T) {
	t.Helper()
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// bounds are soft and hard limits in GiB.
type bounds struct{ Soft, Hard float64 }

// expect compares the driver's limits. Reservations of cgroups that are gone are under "gone".
func (r *rig) expect(t *testing.T, when string, want map[string]bounds) {
	t.Helper()
	got := map[string]bounds{}
	for _, l := range r.node.Show(t).Limits {
		name := l.Cgroup
		if l.Gone {
			name = "gone"
		}
		got[name] = bounds{Soft: float64(l.Soft) / gib, Hard: float64(l.Hard) / gib}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits %s (-want +got):\n%s", when, diff)
	}
}

func TestAContainerHasItsLimitsBeforeItStarts(t *testing.T) {
	for backend, want := range map[v1alpha1.LimitsBackend]map[string]bounds{
		v1alpha1.LimitsBackendDmem: {first: {0, 24}, second: {0, 12}, cgroupfs.Pod: {16, 24}, other: {0, 12}, cgroupfs.Other: {8, 12}},
		v1alpha1.LimitsBackendMisc: {first: {10 + 2.0/3, 24}, second: {2 + 2.0/3, 12}, other: {2 + 2.0/3, 12}},
	} {
		t.Run(string(backend), func(t *testing.T) {
			r := newRig(t, "615.71.09", string(backend))
			r.prepare(t, backend, false, "one", "two")
			r.mustStart(t, 10, first, "one", "two", "one")
			r.mustStart(t, 11, second, "one")
			r.mustStart(t, 12, other, "one")
			got := map[string]bounds{}
			for _, l := range r.node.Show(t).Limits {
				got[l.Cgroup] = bounds{Soft: float64(l.Soft) / gib, Hard: float64(l.Hard) / gib}
			}
			near := cmp.Comparer(func(a, b float64) bool { return a-b < 0.002 && b-a < 0.002 })
			if diff := cmp.Diff(want, got, near); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimitsFollowWhatChanges(t *testing.T) {
	r := newRig(t, "615.71.09", "dmem")
	r.prepare(t, v1alpha1.LimitsBackendDmem, false, "one", "two")
	r.mustStart(t, 10, first, "one")
	r.mustStart(t, 11, second, "two")
	r.expect(t, "at first", map[string]bounds{first: {0, 12}, second: {0, 12}, cgroupfs.Pod: {16, 24}})
	r.pages["one"] = 6 * gib
	r.sync(t)
	r.expect(t, "after a share's page was lowered", map[string]bounds{first: {0, 6}, second: {0, 12}, cgroupfs.Pod: {12, 18}})
	r.publish(t, software(""), 300)
	r.sync(t)
	r.expect(t, "after the pool sells more", map[string]bounds{first: {0, 6}, second: {0, 12}, cgroupfs.Pod: {6, 18}})
	r.fs.Remove(t, second)
	r.sync(t)
	r.expect(t, "after a container has ended", map[string]bounds{first: {0, 6}, cgroupfs.Pod: {2, 6}})
	again := cgroupfs.Pod + "/cri-containerd-d.scope"
	r.mustStart(t, 12, again, "two")
	r.expect(t, "after it has started again", map[string]bounds{first: {0, 6}, again: {0, 12}, cgroupfs.Pod: {6, 18}})
}

func TestNothingStaysReserved(t *testing.T) {
	for _, backend := range []v1alpha1.LimitsBackend{v1alpha1.LimitsBackendDmem, v1alpha1.LimitsBackendMisc} {
		t.Run(string(backend), func(t *testing.T) {
			r := newRig(t, "615.71.09", string(backend))
			r.prepare(t, backend, false, "one")
			r.mustStart(t, 10, first, "one")
			if err := r.Release(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}
			for _, l := range r.node.Show(t).Limits {
				if l.Soft != 0 || l.Hard != 12*gib {
					t.Errorf("after the release %s has %d guaranteed and a limit of %d", l.Cgroup, l.Soft, l.Hard)
				}
			}
			r.fs.Remove(t, cgroupfs.Pod)
			r.sync(t)
			r.expect(t, "after the pod has gone", map[string]bounds{})
			record, err := r.store.Limits()
			if err != nil || len(record.Set)+len(record.Containers) > 0 {
				t.Errorf("the record still has %+v (%v)", record, err)
			}
		})
	}
}

// TestTheNextAgentFinishes has the driver be given nothing of what is recorded, as after a kill in between.
func TestTheNextAgentFinishes(t *testing.T) {
	r := newRig(t, "615.71.09", "dmem")
	r.prepare(t, v1alpha1.LimitsBackendDmem, true, "one")
	r.node.CLI(t, "fault", "--call", "nvmlDeviceSetMemoryLimits_v1", "--return", "NVML_ERROR_UNKNOWN", "--count", "0")
	if err := r.starts(t, 10, first, "one"); err == nil {
		t.Error("a container starts without its limit")
	}
	r.node.CLI(t, "fault", "--clear")
	r.expect(t, "before", map[string]bounds{})
	r.restart()
	r.sync(t)
	r.expect(t, "under the next agent", map[string]bounds{first: {0, 12}, cgroupfs.Pod: {8, 12}})
	// Claims that were released while no agent was there keep nothing.
	if err := r.store.SaveClaims(checkpoint.Claims{}); err != nil {
		t.Fatal(err)
	}
	r.restart()
	r.sync(t)
	r.expect(t, "after the release", map[string]bounds{first: {0, 12}, cgroupfs.Pod: {0, 12}})
}

func TestWhatMayNotStart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(t *testing.T, r *rig)
		q     hook.Question
		want  error
		says  string
	}{
		{name: "a claim that is not known", q: hook.Question{PID: 10, Claim: "none"}, want: cgroups.ErrNotPrepared},
		{name: "a result that is not there", q: hook.Question{PID: 10, Claim: "one", Result: 3}, want: cgroups.ErrNotPrepared},
		{name: "a process that is not there", q: hook.Question{PID: 77, Claim: "one"}, want: cgroups.ErrCgroup},
		{name: "a process in the root", q: hook.Question{PID: 10, Claim: "one"}, want: cgroups.ErrCgroup, says: "no container's cgroup",
			setup: func(t *testing.T, r *rig) { t.Helper(); r.put(t, "0::/\n") }},
		{name: "an agent in another cgroup namespace", q: hook.Question{PID: 10, Claim: "one"}, want: cgroups.ErrCgroup, says: "cgroup namespace",
			setup: func(t *testing.T, r *rig) { t.Helper(); r.put(t, "0::/../../pod/c\n") }},
		{name: "a process of cgroup v1", q: hook.Question{PID: 10, Claim: "one"}, want: cgroups.ErrCgroup, says: "names no cgroup v2",
			setup: func(t *testing.T, r *rig) { t.Helper(); r.put(t, "5:memory:/a\n") }},
		{name: "a cgroup that is not there", q: hook.Question{PID: 10, Claim: "one"}, want: cgroups.ErrCgroup, says: "there is no",
			setup: func(t *testing.T, r *rig) { t.Helper(); r.put(t, "0::/gone\n") }},
		{name: "a refusal of the driver that is demanded", q: hook.Question{PID: 10, Claim: "one"}, want: nvml.ErrLimitsRefused,
			setup: func(t *testing.T, r *rig) {
				t.Helper()
				r.node.CLI(t, "fault", "--call", "nvmlDeviceSetMemoryLimits_v1", "--return", "NVML_ERROR_NO_PERMISSION", "--count", "0")
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "615.71.09", "misc")
			r.prepare(t, v1alpha1.LimitsBackendMisc, true, "one")
			r.fs.Put(t, 10, first)
			if tc.setup != nil {
				tc.setup(t, r)
			}
			err := r.Admit(t.Context(), tc.q)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Admit() = %v, want %v that says %q", err, tc.want, tc.says)
			}
		})
	}
}

// put has process 10 be where the text says.
func (r *rig) put(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.fs.Proc, "10", "cgroup"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestARefusalLeavesTheContainerToTheLibrary is what a pool with Auto does.
func TestARefusalLeavesTheContainerToTheLibrary(t *testing.T) {
	r := newRig(t, "615.71.09", "dmem")
	if got := r.Probe(t.Context(), r.facts).Answer; got != memlimits.Works {
		t.Fatalf("Probe() = %s", got)
	}
	r.prepare(t, v1alpha1.LimitsBackendDmem, false, "one")
	r.fs.Put(t, 10, first)
	if err := os.Remove(filepath.Join(r.fs.Root, cgroupfs.Pod, "cgroup.subtree_control")); err != nil {
		t.Fatal(err)
	}
	if err := r.Admit(t.Context(), hook.Question{PID: 10, Claim: "one"}); err != nil {
		t.Errorf("Admit() = %v", err)
	}
	r.sync(t)
	r.expect(t, "afterwards", map[string]bounds{cgroupfs.Pod: {0, 12}})
	if held := r.HeldBy(t.Context(), software(""), r.facts); held.Reason != v1alpha1.ReasonLimitsRefused || !strings.Contains(held.Message, "+dmem") {
		t.Errorf("new shares are %+v", held)
	}
	claims, err := r.store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		told, err := r.Fallbacks(claims, checkpoint.Published{}, nil)
		if err != nil || len(told) != want {
			t.Errorf("Fallbacks() = %v, %v, want %d", told, err, want)
		}
	}
	if err := r.Release(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if record, err := r.store.Limits(); err != nil || len(record.FellBack)+len(record.Told) > 0 {
		t.Errorf("the record still has %+v (%v)", record, err)
	}
}

func TestClaimsOfTheLibraryAreToldOnce(t *testing.T) {
	r := newRig(t, "580.159.04", "dmem")
	r.prepare(t, "", false, "one")
	claims, err := r.store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	published, err := r.store.Published()
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]v1alpha1.GPUMemoryLimits{r.gpu: r.HeldBy(t.Context(), software(""), r.facts)}
	for _, want := range []int{1, 0} {
		told, err := r.Fallbacks(claims, published, held)
		if err != nil || len(told) != want {
			t.Fatalf("Fallbacks() = %v, %v, want %d", told, err, want)
		}
		for _, f := range told {
			if f.Claim.UID != "one" || !strings.Contains(f.Message, "R615") {
				t.Errorf("told %+v", f)
			}
		}
	}
}
