// SPDX-License-Identifier: Apache-2.0

package enforcement_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/test/framework/container"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// foundWithin is how soon what gets past the library is found.
const foundWithin = 10 * time.Second

func acting(action v1alpha1.ViolationAction) v1alpha1.GPUDecision {
	decision := shared()
	decision.OnViolation = action
	return decision
}

// past is a plan whose programs start without the library, as static ones do and those with a loader of their own.
func past(plan container.Plan) container.Plan {
	plan.Mounts = slices.DeleteFunc(slices.Clone(plan.Mounts), func(m container.Mount) bool {
		return m.ContainerPath == "/etc/ld.so.preload" || strings.HasSuffix(m.ContainerPath, "/libsluice.so")
	})
	return plan
}

// bare is a plan whose programs have left all of Sluice's mounts behind.
func bare(plan container.Plan) container.Plan {
	plan = past(plan)
	plan.Mounts = slices.DeleteFunc(plan.Mounts, func(m container.Mount) bool {
		return strings.HasPrefix(m.ContainerPath, limits.ContainerRoot)
	})
	return plan
}

// takes has a program take so many pieces.
func takes(t *testing.T, plan container.Plan, pieces int) *program {
	t.Helper()
	p := run(t, plan, strconv.Itoa(pieces))
	p.arrives(t, "ready")
	if s := p.next(t, "full"); s.Pieces != pieces {
		t.Fatalf("the program took %d pieces before error %d, want %d", s.Pieces, s.Error, pieces)
	}
	return p
}

// says waits until the agent says all of the texts in one line, and returns the line.
func (n *node) says(t *testing.T, texts ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), foundWithin)
	defer cancel()
	line := ""
	err := stack.Poll(ctx, fmt.Sprintf("the agent says %q", texts), func(context.Context) (bool, error) {
		for said := range strings.Lines(n.agent.Log()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(said, text) }) {
				line = said
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// ends waits until a program has been killed.
func (p *program) ends(t *testing.T) {
	t.Helper()
	select {
	case _, open := <-p.lines:
		if open {
			t.Fatal("the program goes on")
		}
	case <-time.After(foundWithin):
		t.Fatalf("the program still runs after %s", foundWithin)
	}
}

// goesOn says whether a program is still there and can still work.
func (p *program) goesOn(t *testing.T) {
	t.Helper()
	p.next(t, "empty")
}

func TestAProgramPastTheLibraryIsFoundAndReported(t *testing.T) {
	n := newNode(t, shared())
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	neighbour := takes(t, n.prepare(t, n.Allocate("neighbour", share("gpu-0"))), 3)
	known := takes(t, plan, 1)
	wild := takes(t, past(plan), 40)
	line := n.says(t, "A share is not kept to", `"uid":"uid-claim"`, `"reason":"OverLimit"`)
	if !strings.Contains(line, called(wild)) || strings.Contains(line, called(known)) {
		t.Errorf("the agent does not name the process that is past the library: %s", line)
	}
	for _, p := range []*program{neighbour, known, wild} {
		p.goesOn(t)
	}
	if log := n.agent.Log(); strings.Contains(log, `"uid":"uid-neighbour","result"`) || strings.Contains(log, "Killed") {
		t.Errorf("others are condemned:\n%s", log)
	}
}

// called is what the agent calls a program.
func called(p *program) string { return fmt.Sprintf("linear (%d)", p.cmd.Process.Pid) }

func TestAProgramPastTheLibraryIsKilledWhereThePoolSaysSo(t *testing.T) {
	n := newNode(t, acting(v1alpha1.ViolationKill))
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	neighbour := takes(t, n.prepare(t, n.Allocate("neighbour", share("gpu-0"))), 3)
	known := takes(t, plan, 1)
	takes(t, past(plan), 2).ends(t) // within the limit, and not held to it
	neighbour.goesOn(t)
	known.goesOn(t)
	takes(t, past(plan), 40).ends(t)
	neighbour.next(t, "full")
}

// TestSmallProgramsCountTogether has twelve, each far below the limit.
func TestSmallProgramsCountTogether(t *testing.T) {
	n := newNode(t, shared())
	plan := past(n.prepare(t, n.Allocate("claim", share("gpu-0"))))
	for range 12 {
		takes(t, plan, 1)
	}
	n.says(t, "A share is not kept to", `"reason":"OverLimit"`)
}

// TestALoweredLimitCondemnsNobody lowers the limit of a share that is full, and has another violated to know that it was
// looked at.
func TestALoweredLimitCondemnsNobody(t *testing.T) {
	n := newNode(t, shared())
	full := takes(t, n.prepare(t, n.Allocate("claim", share("gpu-0"))), fits(limit, 1, 0))
	wild := n.prepare(t, n.Allocate("wild", share("gpu-0")))
	takes(t, past(wild), 1)
	n.says(t, "A share is not kept to", `"uid":"uid-wild"`) // so the full one was seen under its limit
	door, err := limits.New(filepath.Join(n.Dir, "shares"))
	if err != nil {
		t.Fatal(err)
	}
	uuid := n.Look(t).GPUs[0].UUID
	_, err = door.Write(limits.Share{
		ClaimUID: "uid-claim", UUID: uuid, MemoryLimit: limit / 2, Context: n.words(t, "claim").Context, ComputeShare: 3000,
		Enforce: limits.EnforceMemory | limits.EnforceCompute,
	})
	if err != nil {
		t.Fatal(err)
	}
	takes(t, past(wild), 40)
	n.says(t, "A share is not kept to", `"uid":"uid-wild"`, `"reason":"OverLimit"`)
	if strings.Contains(n.agent.Log(), `"uid":"uid-claim","result"`) {
		t.Error("a share is condemned because its limit was lowered")
	}
	full.goesOn(t)
}

// cgroup makes the cgroup of a container of a pod, and puts programs into it.
func cgroup(t *testing.T, pod, name string) func(*program) {
	t.Helper()
	var made []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		for _, dir := range []string{"kubepods-sluice-test", "pod" + pod, name} {
			root = filepath.Join(root, dir)
			if err := os.Mkdir(root, 0o755); err != nil && !os.IsExist(err) {
				t.Skipf("no cgroup can be made here: %v", err)
			}
			made = append(made, root)
		}
		break
	}
	if len(made) == 0 {
		t.Skip("there are no cgroups here")
	}
	slices.Reverse(made)
	t.Cleanup(func() {
		for _, dir := range made {
			_ = os.Remove(dir)
		}
	})
	return func(p *program) {
		if err := os.WriteFile(filepath.Join(made[0], "cgroup.procs"), []byte(strconv.Itoa(p.cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.kill() })
	}
}

// TestAProgramThatLeftItsMountsIsKnownByItsContainer has one whose first process was seen with them, also by the agent before.
func TestAProgramThatLeftItsMountsIsKnownByItsContainer(t *testing.T) {
	n := newNode(t, shared())
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	enter := cgroup(t, "11111111-2222-3333-4444-555555555555", "c")
	init := run(t, plan, "1")
	enter(init)
	init.arrives(t, "ready")
	ctx, cancel := context.WithTimeout(t.Context(), foundWithin)
	defer cancel()
	err := stack.Poll(ctx, "the container's share is known", func(context.Context) (bool, error) {
		record, err := n.Records.Watched()
		return len(record.Containers) == 1, err
	})
	if err != nil {
		t.Fatal(err)
	}
	wild := run(t, bare(plan), "2")
	enter(wild)
	init.kill()
	n.agent.Kill()
	n.agent = n.Start(t)
	wild.arrives(t, "ready")
	wild.next(t, "full")
	n.says(t, "A share is not kept to", `"uid":"uid-claim"`, `"reason":"UnregisteredProcess"`, called(wild))
}

// TestNoFigureIsNotNothing has NVML name a process of a share without saying what it holds.
func TestNoFigureIsNotNothing(t *testing.T) {
	n := newNode(t, shared())
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	plan.Args = []string{"/bin/sleep", "1000"}
	cmd, err := container.Command(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	attach := exec.CommandContext(t.Context(), repository("test", "fakegpu", "build", "fakegpu"), "attach", "--state", n.Node.State,
		"--gpu", "0", "--memory", "0", "--pid", strconv.Itoa(cmd.Process.Pid))
	if out, err := attach.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.says(t, "Nobody can say what a share's processes hold", fmt.Sprintf("sleep (%d)", cmd.Process.Pid))
}
