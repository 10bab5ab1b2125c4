// SPDX-License-Identifier: Apache-2.0

package violations_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/procs"
	"github.com/sluice-gpu/sluice/node-agent/violations"
)

var errInjected = errors.New("injected")

func (n *node) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.said(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestLook(t *testing.T) {
	const past = "ml/a UnregisteredProcess 1Gi/2Gi ml/pod-a python (7)"
	a := []string{"a"}
	for _, tc := range []struct {
		name      string
		processes []process
		change    func(n *node)
		want      []string
	}{
		{"a process that the library knows", []process{{pid: 7, bytes: gibi, mounts: a, library: true}}, nil, nil},
		{"one that it does not", []process{{pid: 7, bytes: gibi, mounts: a}}, nil, []string{past}},
		{"one above its limit", []process{{pid: 7, bytes: 3 * gibi, mounts: a, library: true}}, nil, []string{"ml/a OverLimit 3Gi/2Gi ml/pod-a"}},
		{"a share's processes count together", []process{
			{pid: 7, bytes: 2 * gibi, mounts: a, library: true}, {pid: 8, bytes: gibi, mounts: a},
		}, nil, []string{"ml/a OverLimit 3Gi/2Gi ml/pod-a python (8)"}},
		{"one that has left its mounts behind is known by its container", []process{
			{pid: 5, mounts: a, pod: "a", name: "c", idle: true}, {pid: 7, bytes: gibi, pod: "a", name: "c"},
		}, func(n *node) { // the record does not help
			c := n.claims["a"]
			c.Pods[0].UID = podUID("x")
			n.reserved = a
			n.claims["a"] = c
		}, []string{past}},
		{"one whose container nobody has seen is known by its pod", []process{{pid: 7, bytes: gibi, pod: "a", name: "c"}}, nil, []string{past}},
		{"another container of another pod is none of the share's", []process{{pid: 7, bytes: gibi, pod: "b", name: "c"}}, nil, nil},
		{"a process of the node is none", []process{{pid: 7, bytes: gibi}}, nil, nil},
		{"one without a figure", []process{{pid: 7, mounts: a, library: true}}, nil, []string{"gpu-0: NVML does not say what python (7) of ml/pod-a holds"}},
		{"one that holds something and that NVML does not list", []process{{pid: 7, bytes: gibi, mounts: a, library: true, idle: true}}, nil, []string{
			"gpu-0: NVML does not say what python (7) of ml/pod-a holds",
		}},
		{"one that has registered and has no context yet", []process{{pid: 7, bytes: 1, mounts: a, library: true, idle: true}}, nil, nil},
		{"a ledger that is cut short knows nobody", []process{{pid: 7, bytes: gibi, mounts: a, library: true}}, func(n *node) {
			n.ledgerErr, n.holders = io.ErrUnexpectedEOF, map[string][]limits.Holder{}
		}, []string{past}},
		{"a ledger that takes too long says nothing about others", []process{{pid: 7, bytes: gibi, mounts: a}}, func(n *node) { n.partial = true }, nil},
		{"NVML that fails", []process{{pid: 7, bytes: gibi, mounts: a}}, func(n *node) { n.nvmlErr["GPU-0"] = errInjected }, []string{
			"gpu-0: nothing is to be seen: injected",
		}},
		{"processes that are all not to be seen", []process{{pid: 7, bytes: gibi, mounts: a}}, func(n *node) { n.watcher.Proc = n.dir }, []string{
			"gpu-0: nothing is to be seen: the agent does not see the processes that NVML lists; its pod needs hostPID",
		}},
		{"a claim that is being prepared is left alone", []process{{pid: 7, bytes: gibi, mounts: a}}, func(n *node) {
			c := n.claims["a"]
			c.State = checkpoint.Preparing
			n.claims["a"] = c
		}, nil},
		{"so is a share that nothing is held in", []process{{pid: 7, bytes: gibi, mounts: a}}, func(n *node) { n.claims["a"].Results[0].Enforced = false }, nil},
		{"and one that is being released", []process{{pid: 7, bytes: gibi, mounts: a}}, func(n *node) { delete(n.words, "a") }, nil},
		{"a MIG instance has figures of its own", []process{{pid: 7, bytes: gibi, mounts: a}}, func(n *node) {
			n.claims["a"].Results[0].Instance = &checkpoint.Instance{UUID: "MIG-0"}
			n.figures["MIG-0"], n.figures["GPU-0"] = n.figures["GPU-0"], nil
		}, []string{past}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, "a")
			for _, p := range tc.processes {
				n.start(p)
			}
			if tc.change != nil {
				tc.change(n)
			}
			n.look(1)
			if report := n.watcher.Report(); report.Known || len(n.said()) > 0 {
				t.Errorf("one look says %+v", report)
			}
			n.look(1)
			if !n.watcher.Report().Known {
				t.Error("two looks say nothing")
			}
			n.want(t, tc.want...)
			changes := n.changes
			n.look(3)
			n.want(t, tc.want...)
			if n.changes != changes {
				t.Errorf("%d changes while nothing changes", n.changes-changes)
			}
		})
	}
}

func TestPodsAreToldOnce(t *testing.T) {
	n := newNode(t, "a")
	n.start(process{pid: 7, bytes: 3 * gibi, mounts: []string{"a"}})
	n.look(5)
	n.end()
	n.look(3)
	want := []string{
		"ml/pod-a Warning UnregisteredProcess: gpu-0 is used past Sluice's library, which holds its users to their limits, by python (7)",
		"ml/pod-a Normal WithinLimits: the share's processes are held by their limit again",
	}
	want[0] = "ml/pod-a Warning OverLimit: the processes of the share hold 3Gi of gpu-0 together, more than its limit of 2Gi; Sluice's library does not hold python (7)"
	if diff := cmp.Diff(want, n.told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// One that comes and goes is told of again after a while only.
	n.start(process{pid: 8, bytes: 3 * gibi, mounts: []string{"a"}})
	n.look(3)
	n.end()
	n.look(3)
	if len(n.told) != 2 {
		t.Errorf("a share that comes and goes is told of at once again: %v", n.told[2:])
	}
	n.clock.Step(10 * time.Minute)
	n.look(1)
	n.start(process{pid: 9, bytes: 3 * gibi, mounts: []string{"a"}})
	n.look(3)
	if len(n.told) != 3 {
		t.Errorf("a share that violates its limit again much later is not told of: %v", n.told[2:])
	}
}

func TestKill(t *testing.T) {
	n := newNode(t, "a", "b")
	n.action = v1alpha1.ViolationKill
	n.start(process{pid: 7, bytes: gibi, mounts: []string{"a"}})
	n.start(process{pid: 8, bytes: gibi, mounts: []string{"a"}, library: true})
	n.start(process{pid: 9, bytes: gibi, mounts: []string{"b"}, library: true})
	n.start(process{pid: 10, bytes: gibi})
	n.look(1)
	if len(n.killed) > 0 {
		t.Errorf("killed %v at the first look", n.killed)
	}
	n.look(1)
	if diff := cmp.Diff([]int{7}, n.killed); diff != "" {
		t.Errorf("killed (-want +got):\n%s", diff)
	}
	if last := n.told[len(n.told)-1]; last != "ml/pod-a Warning ProcessesKilled: killed as the pool says: python (7)" {
		t.Errorf("the pod is told %q", last)
	}
}

func TestNobodyIsKilledWhereThePoolSaysReport(t *testing.T) {
	n := newNode(t, "a")
	n.start(process{pid: 7, bytes: 3 * gibi, mounts: []string{"a"}})
	n.look(4)
	if len(n.killed) > 0 {
		t.Errorf("killed %v", n.killed)
	}
}

func TestAnotherAgentKnowsAContainerThatWasSeen(t *testing.T) {
	n := newNode(t, "a")
	n.claims["a"].Pods[0].UID = podUID("x") // so that the record is all there is
	n.reserved = []string{"a"}
	n.start(process{pid: 5, mounts: []string{"a"}, pod: "a", name: "c", idle: true})
	n.look(1)
	if n.saves != 1 || len(n.watched.Containers) != 1 {
		t.Fatalf("saved %d times: %+v", n.saves, n.watched)
	}
	// All of the container's processes have left their mounts behind.
	n.start(process{pid: 5, pod: "a", name: "c", idle: true})
	n.start(process{pid: 7, bytes: gibi, pod: "a", name: "c"})
	n.watcher = n.another()
	n.look(2)
	n.want(t, "ml/a UnregisteredProcess 1Gi/2Gi ml/pod-a python (7)")
	if n.saves != 1 {
		t.Errorf("saved %d times, want once", n.saves)
	}
	n.end()
	if err := os.RemoveAll(n.proc + "/5"); err != nil {
		t.Fatal(err)
	}
	n.look(1)
	if len(n.watched.Containers) != 0 {
		t.Errorf("a container that has ended is remembered: %+v", n.watched.Containers)
	}
}

// TestAContainerThatShowsSomeOfItsShares has left the mounts of one share behind before it was seen, and kept those of another.
func TestAContainerThatShowsSomeOfItsShares(t *testing.T) {
	n := newNode(t, "a", "b")
	other := n.claims["b"]
	other.Pods, other.Results[0].GPU, other.Results[0].Device = n.claims["a"].Pods, "GPU-1", "gpu-1"
	n.claims["b"] = other
	n.start(process{pid: 7, bytes: gibi, mounts: []string{"b"}, pod: "a", name: "c"})
	n.look(2)
	if diff := cmp.Diff([]string{"ml/a UnregisteredProcess 1Gi/2Gi ml/pod-a python (7)"}, n.said()); diff != "" {
		t.Errorf("what is said (-want +got):\n%s", diff)
	}
}

// TestAPodThatWasGivenAClaimLaterHidesIt is in no record, and has left its mounts behind before it was seen.
func TestAPodThatWasGivenAClaimLaterHidesIt(t *testing.T) {
	n := newNode(t, "a")
	n.action, n.reserved = v1alpha1.ViolationKill, []string{"a", "z"}
	n.start(process{pid: 7, bytes: 3 * gibi, pod: "z", name: "c"})
	n.start(process{pid: 8, bytes: gibi, pod: "x", name: "d"}) // one that has nothing of Sluice's
	n.look(2)
	if diff := cmp.Diff([]string{"ml/a OverLimit 3Gi/2Gi ml/pod-z python (7)"}, n.said()); diff != "" {
		t.Errorf("what is said (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{7}, n.killed); diff != "" {
		t.Errorf("who is killed (-want +got):\n%s", diff)
	}
}

func TestAPodThatWasGivenAClaimLaterIsTold(t *testing.T) {
	n := newNode(t, "a")
	n.reserved = []string{"a", "z"}
	n.start(process{pid: 7, bytes: gibi, mounts: []string{"a"}, pod: "z", name: "c"})
	n.look(2)
	n.want(t, "ml/a UnregisteredProcess 1Gi/2Gi ml/pod-z python (7)")
	if len(n.told) != 1 || !strings.HasPrefix(n.told[0], "ml/pod-z Warning") {
		t.Errorf("told %v", n.told)
	}
}

// TestAGPUThatHangsHidesNothingOnOthers has a call that does not return, at every look.
func TestAGPUThatHangsHidesNothingOnOthers(t *testing.T) {
	n := newNode(t, "a", "b")
	n.claims["b"].Results[0].GPU, n.claims["b"].Results[0].Device = "GPU-1", "gpu-1"
	n.hangs = make(chan struct{})
	defer close(n.hangs)
	n.start(process{pid: 7, bytes: gibi, mounts: []string{"a"}})
	n.look(2)
	n.want(t, "ml/a UnregisteredProcess 1Gi/2Gi ml/pod-a python (7)", "gpu-1: nothing is to be seen: NVML does not answer in time")
}

func TestSignals(t *testing.T) {
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd
	}
	victim := start()
	killer := violations.Signals{Proc: "/proc"}
	if err := killer.Kill(victim.Process.Pid, func() bool { return false }); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("another process than the one that was meant: %v", err)
	}
	if _, err := procs.Start("/proc", victim.Process.Pid); err != nil {
		t.Fatalf("it was killed all the same: %v", err)
	}
	if err := killer.Kill(victim.Process.Pid, func() bool { return true }); err != nil {
		t.Error(err)
	}
	if err := victim.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
	if err := killer.Kill(victim.Process.Pid, func() bool { return true }); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("one that has ended: %v", err)
	}
	if err := killer.Kill(os.Getpid(), func() bool { return true }); err == nil {
		t.Error("it killed itself")
	}
	if err := (violations.Signals{Proc: t.TempDir()}).Kill(start().Process.Pid, func() bool { return true }); err == nil {
		t.Error("a PID of another procfs was killed")
	}
}
