// SPDX-License-Identifier: Apache-2.0

package enforcement_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/test/framework/cgroupfs"
	"github.com/sluice-gpu/sluice/test/framework/container"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	firstContainer  = cgroupfs.Pod + "/cri-containerd-a.scope"
	secondContainer = cgroupfs.Pod + "/cri-containerd-b.scope"
)

// limited is a node whose driver has memory limits by cgroup.
type limited struct {
	*node
	fs *cgroupfs.FS
}

func newLimited(t *testing.T, version, backend string, form v1alpha1.GPUDecision) *limited {
	t.Helper()
	fs := cgroupfs.New(t, backend == "dmem")
	driver := fakenode.Driver{Version: version, Cgroups: fs.Root, Limits: backend}
	n := &limited{fs: fs, node: nodeWith(t, driver, []string{"--cgroup-dir=" + fs.Root, "--proc-dir=" + fs.Proc}, form)}
	fs.Locate(t, n.Node)
	return n
}

// held has the node's driver hold the memory of shares, or leaves that to it.
func held(mode v1alpha1.MemoryLimits) v1alpha1.GPUDecision {
	form := shared()
	form.MemoryLimits = mode
	return form
}

// hooks are the programs that the container runtime runs before a container of a claim starts.
func (n *limited) hooks(t *testing.T, claim string) []startHook {
	t.Helper()
	var found []startHook
	for _, name := range n.Names(t, "cdi") {
		data, err := os.ReadFile(filepath.Join(n.Dir, "cdi", name))
		if err != nil {
			t.Fatal(err)
		}
		var spec struct {
			Devices []struct {
				Name           string
				ContainerEdits edits
			}
		}
		if err := json.Unmarshal(data, &spec); err != nil {
			t.Fatal(err)
		}
		for _, d := range spec.Devices {
			for _, h := range d.ContainerEdits.Hooks {
				if strings.HasPrefix(d.Name, "uid-"+claim+"-") && filepath.Base(h.Path) == "sluice-cdi-hook" {
					found = append(found, h)
				}
			}
		}
	}
	return found
}

// ask runs a hook as the container runtime does.
func ask(h startHook, pid int) error {
	cmd := &exec.Cmd{Path: h.Path, Args: h.Args}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"ociVersion":"1.2.0","id":"c","status":"created","pid":%d,"bundle":"/b"}`, pid))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// starting is a container whose process waits for the runtime's hooks.
type starting struct {
	*program
	fifo string
}

// create makes a container in a cgroup, with the program that no library can be put into.
func (n *limited) create(t *testing.T, plan container.Plan, cgroup string, arguments ...string) starting {
	t.Helper()
	s := starting{fifo: filepath.Join(t.TempDir(), "start")}
	if err := unix.Mkfifo(s.fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	plan.Wait, plan.Args = s.fifo, append([]string{repository("interceptor", "build", "tests", "static", "linear")}, arguments...)
	s.program = start(t, plan)
	n.fs.Put(t, s.cmd.Process.Pid, cgroup)
	return s
}

// begin lets the container's program start.
func (s starting) begin(t *testing.T) *program {
	t.Helper()
	if err := os.WriteFile(s.fifo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return s.program
}

// start has a container of the claim named claim start as the runtime does: hooks first.
func (n *limited) start(t *testing.T, plan container.Plan, cgroup string, arguments ...string) *program {
	t.Helper()
	s := n.create(t, plan, cgroup, arguments...)
	hooks := n.hooks(t, "claim")
	if len(hooks) != 1 {
		t.Fatalf("%d hooks are run at the start, want 1", len(hooks))
	}
	if err := ask(hooks[0], s.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return s.begin(t)
}

// context518 is what a context takes of a limit of the driver's.
func context518(limit uint64, contexts int) int {
	return int((limit - uint64(contexts)*518*mebi) / piece)
}

// reserved are the cgroups to which the driver guarantees memory.
func (n *limited) reserved(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, l := range n.Node.Show(t).Limits {
		if l.Soft > 0 {
			found = append(found, l.Cgroup)
		}
	}
	return found
}

func TestTheDriverHoldsAProgramPastTheLibrary(t *testing.T) {
	for _, backend := range []string{"dmem", "misc"} {
		t.Run(backend, func(t *testing.T) {
			n := newLimited(t, "615.71.09", backend, held(""))
			claim := n.Allocate("claim", share("gpu-0"))
			p := n.start(t, n.prepare(t, claim), firstContainer)
			if s := p.arrives(t, "ready"); s.Total != limit {
				t.Errorf("the program is told of %d bytes, want %d", s.Total, limit)
			}
			if s := p.next(t, "full"); s.Pieces != context518(limit, 1) || s.Error != outOfMemory {
				t.Errorf("it had %d pieces before error %d, want %d", s.Pieces, s.Error, context518(limit, 1))
			}
			if reserved := n.reserved(t); len(reserved) != 1 {
				t.Errorf("memory is guaranteed to %v", reserved)
			}
			p.kill()
			if err := n.agent.Unprepare(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			if reserved := n.reserved(t); len(reserved) > 0 {
				t.Errorf("after the release memory is guaranteed to %v", reserved)
			}
			n.fs.Remove(t, cgroupfs.Pod)
			if left := n.Node.Show(t).Limits; len(left) > 0 {
				t.Errorf("after the pod has gone there are %+v", left)
			}
		})
	}
}

// TestContainersOfAPodAreHeldTogether is what limits that nest are good for; where they do not, each container is held.
func TestContainersOfAPodAreHeldTogether(t *testing.T) {
	for backend, want := range map[string]int{"dmem": context518(limit, 2) - 10, "misc": context518(limit, 1)} {
		t.Run(backend, func(t *testing.T) {
			n := newLimited(t, "615.71.09", backend, held(v1alpha1.MemoryLimitsDriver))
			plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
			first := n.start(t, plan, firstContainer, "10")
			first.arrives(t, "ready")
			if s := first.next(t, "full"); s.Pieces != 10 {
				t.Fatalf("the first container has %d pieces, want 10", s.Pieces)
			}
			second := n.start(t, plan, secondContainer)
			second.arrives(t, "ready")
			if s := second.next(t, "full"); s.Pieces != want || s.Error != outOfMemory {
				t.Errorf("beside it the second had %d before error %d, want %d", s.Pieces, s.Error, want)
			}
		})
	}
}

func TestWithoutTheDriverTheLibraryHolds(t *testing.T) {
	n := newLimited(t, "580.159.04", "dmem", held(""))
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	if hooks := n.hooks(t, "claim"); len(hooks) > 0 {
		t.Errorf("at the start %+v are run", hooks)
	}
	p := run(t, plan)
	p.arrives(t, "ready")
	if s := p.next(t, "full"); s.Pieces != fits(limit, 1, 0) || s.Error != outOfMemory {
		t.Errorf("it had %d pieces before error %d, want %d", s.Pieces, s.Error, fits(limit, 1, 0))
	}
	form := held(v1alpha1.MemoryLimitsDriver)
	n.Publish(t, form)
	_, err := n.agent.Prepare(t.Context(), n.Allocate("demanding", share("gpu-0")))
	if err == nil || !strings.Contains(err.Error(), "install driver R615 or newer") {
		t.Errorf("where the pool demands the driver: %v", err)
	}
}

// TestTheDriversLimitFollowsTheShares has a share's page raised under a running program.
func TestTheDriversLimitFollowsTheShares(t *testing.T) {
	n := newLimited(t, "615.71.09", "dmem", held(""))
	p := n.start(t, n.prepare(t, n.Allocate("claim", share("gpu-0"))), firstContainer)
	p.arrives(t, "ready")
	p.next(t, "full")
	door, err := limits.New(filepath.Join(n.Dir, "shares"))
	if err != nil {
		t.Fatal(err)
	}
	gpu := n.Look(t).GPUs[0].UUID
	const raised = 10 << 30
	if _, err := door.Write(limits.Share{
		ClaimUID: "uid-claim", UUID: gpu, ParentUUID: gpu, MemoryLimit: raised, Enforce: limits.EnforceMemory | limits.EnforceCompute,
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = stack.Poll(ctx, "the driver has the new limits", func(context.Context) (bool, error) {
		raisedTo := 0
		for _, l := range n.Node.Show(t).Limits {
			if l.Hard == raised {
				raisedTo++
			}
		}
		return raisedTo == 2, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.next(t, "empty"); s.Total != raised {
		t.Errorf("the program is told of %d bytes, want %d", s.Total, raised)
	}
	if s := p.next(t, "full"); s.Pieces != context518(raised, 1) || s.Error != outOfMemory {
		t.Errorf("it had %d pieces before error %d, want %d", s.Pieces, s.Error, context518(raised, 1))
	}
}

func TestAStartIsRefused(t *testing.T) {
	n := newLimited(t, "615.71.09", "dmem", held(v1alpha1.MemoryLimitsDriver))
	claim := n.Allocate("claim", share("gpu-0"))
	s := n.create(t, n.prepare(t, claim), firstContainer)
	h := n.hooks(t, "claim")[0]
	n.Node.CLI(t, "fault", "--call", "nvmlDeviceSetMemoryLimits_v1", "--return", "NVML_ERROR_UNKNOWN", "--count", "0")
	if err := ask(h, s.cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "the container may not start: limiting the memory of") {
		t.Errorf("where the driver fails: %v", err)
	}
	n.Node.CLI(t, "fault", "--clear")
	if err := ask(h, s.cmd.Process.Pid); err != nil {
		t.Errorf("asked again: %v", err)
	}
	n.agent.Kill()
	before := time.Now()
	if err := ask(h, s.cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "the node agent does not answer") {
		t.Errorf("without an agent: %v", err)
	}
	if took := time.Since(before); took > 10*time.Second {
		t.Errorf("without an agent the start took %s to fail", took)
	}
	n.agent = n.Start(t)
	if err := n.agent.Unprepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := ask(h, s.cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "not prepared on this node") {
		t.Errorf("after the release: %v", err)
	}
}

// TestAKilledAgentLeavesNoReservation kills the agent at each of its steps while a container starts. The next one answers,
// and takes back what the driver guarantees.
func TestAKilledAgentLeavesNoReservation(t *testing.T) {
	n := newLimited(t, "615.71.09", "dmem", held(v1alpha1.MemoryLimitsDriver))
	steps := 1
	for at := 0; at <= steps; at++ {
		n.agent.Kill()
		a := n.StartToBeKilled(t, at)
		name := fmt.Sprintf("claim-%d", at)
		claim := n.Allocate(name, share("gpu-0"))
		if _, err := a.Prepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		cgroup := fmt.Sprintf("%s/c%d", cgroupfs.Pod, at)
		n.fs.Put(t, os.Getpid(), cgroup)
		h := n.hooks(t, name)[0]
		a.Arm(t)
		asked := make(chan error, 1)
		go func() { asked <- ask(h, os.Getpid()) }()
		if at == 0 {
			if err := <-asked; err != nil {
				t.Fatal(err)
			}
			steps = a.Finish(t)
			n.agent = n.Start(t)
		} else {
			a.Cut(t)
			n.agent = n.Start(t)
			if err := <-asked; err != nil {
				t.Errorf("killed at %d of %d: %v", at, steps, err)
			}
		}
		n.expectHard(t, at, cgroup)
		if err := n.agent.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if reserved := n.reserved(t); len(reserved) > 0 {
			t.Errorf("killed at %d of %d, memory is guaranteed to %v", at, steps, reserved)
		}
		n.fs.Remove(t, cgroupfs.Pod)
	}
	t.Logf("the agent was killed at each of %d steps", steps)
}

// expectHard looks that a cgroup and its pod have the share's limit.
func (n *limited) expectHard(t *testing.T, at int, cgroup string) {
	t.Helper()
	var text bytes.Buffer
	found := 0
	for _, l := range n.Node.Show(t).Limits {
		fmt.Fprintf(&text, "%+v\n", l)
		if (l.Cgroup == cgroup || l.Cgroup == cgroupfs.Pod) && l.Hard == limit {
			found++
		}
	}
	if found != 2 {
		t.Errorf("killed at %d, %s and its pod are not limited to %d:\n%s", at, cgroup, limit, &text)
	}
}
