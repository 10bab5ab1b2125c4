// SPDX-License-Identifier: Apache-2.0

package enforcement_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/test/framework/container"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	// limit is what a share has.
	limit       = 8 << 30
	outOfMemory = 2
	piece       = 256 * mebi
)

// fits is how many pieces go into a share beside so many contexts.
func fits(limit uint64, contexts, others int) int {
	return int((limit-uint64(contexts)*shares.ContextBytes)/piece) - others
}

// used is what a reader outside sees taken of the first GPU.
func (n *node) used(t *testing.T) uint64 {
	t.Helper()
	return n.Node.Show(t).GPUs[0].UsedBytes
}

func TestAShareIsHeld(t *testing.T) {
	n := newNode(t, shared())
	p := run(t, n.prepare(t, n.Allocate("claim", share("gpu-0"))))
	if s := p.arrives(t, "ready"); s.Total != limit || s.DeviceTotal != limit {
		t.Errorf("the process is told of %d and %d bytes, want its share's %d", s.Total, s.DeviceTotal, limit)
	}
	for _, before := range []string{"", "empty"} {
		if before != "" {
			p.next(t, before)
		}
		s := p.next(t, "full")
		if s.Error != outOfMemory || s.Pieces != fits(limit, 1, 0) {
			t.Errorf("it had %d pieces before error %d, want %d and %d", s.Pieces, s.Error, fits(limit, 1, 0), outOfMemory)
		}
		if used := n.used(t); used > limit || used < uint64(s.Pieces)*piece {
			t.Errorf("NVML sees %d bytes of %d pieces under a limit of %d", used, s.Pieces, limit)
		}
	}
	if p.stderr.Len() > 0 {
		t.Errorf("the program's standard error: %s", p.stderr)
	}
}

// TestContainersOfAClaimShareItsLimit has one process killed and the limit raised while the other runs.
func TestContainersOfAClaimShareItsLimit(t *testing.T) {
	n := newNode(t, shared())
	claim := n.Allocate("claim", share("gpu-0"))
	first, second := run(t, n.prepare(t, claim), "10"), run(t, n.prepare(t, claim))
	first.arrives(t, "ready")
	second.arrives(t, "ready")
	if s := first.next(t, "full"); s.Pieces != 10 {
		t.Fatalf("the first process has %d pieces, want 10", s.Pieces)
	}
	if s := second.next(t, "full"); s.Pieces != fits(limit, 2, 10) || s.Error != outOfMemory {
		t.Errorf("beside it the second had %d before error %d, want %d", s.Pieces, s.Error, fits(limit, 2, 10))
	}
	if used := n.used(t); used > limit {
		t.Errorf("NVML sees %d bytes, limit %d", used, limit)
	}
	first.kill()
	second.next(t, "empty")
	if s := second.next(t, "full"); s.Pieces != fits(limit, 1, 0) || s.Error != outOfMemory {
		t.Errorf("after the first was killed the second had %d before error %d, want %d", s.Pieces, s.Error, fits(limit, 1, 0))
	}
	if used := n.used(t); used > limit || used < uint64(fits(limit, 1, 0))*piece {
		t.Errorf("then NVML sees %d bytes, limit %d", used, limit)
	}
}

// TestSharesOfOneGPUAddUp is one container that uses two claims.
func TestSharesOfOneGPUAddUp(t *testing.T) {
	n := newNode(t, shared())
	plan, other := n.prepare(t, n.Allocate("first", share("gpu-0"))), n.prepare(t, n.Allocate("second", share("gpu-0")))
	plan.Env, plan.Mounts = append(plan.Env, other.Env...), append(plan.Mounts, other.Mounts...)
	p := run(t, plan)
	if s := p.arrives(t, "ready"); s.Total != 2*limit {
		t.Errorf("the process is told of %d bytes, want %d", s.Total, 2*limit)
	}
	if s := p.next(t, "full"); s.Pieces != fits(2*limit, 1, 0) || s.Error != outOfMemory {
		t.Errorf("it had %d pieces before error %d, want %d", s.Pieces, s.Error, fits(2*limit, 1, 0))
	}
	// Another container that has one of the claims finds it taken.
	s := run(t, other).arrives(t, "failed")
	if used := n.used(t); s.Error != outOfMemory || used > 2*limit {
		t.Errorf("beside it a process of the second claim failed with error %d, and NVML sees %d bytes", s.Error, used)
	}
}

func TestALimitChangesUnderARunningProcess(t *testing.T) {
	n := newNode(t, shared())
	claim := n.Allocate("claim", share("gpu-0"))
	p := run(t, n.prepare(t, claim))
	p.arrives(t, "ready")
	p.next(t, "full")
	door, err := limits.New(filepath.Join(n.Dir, "shares"))
	if err != nil {
		t.Fatal(err)
	}
	gpu := n.Look(t).GPUs[0].UUID
	const raised = 10 << 30
	if _, err := door.Write(limits.Share{
		ClaimUID: string(claim.UID), UUID: gpu, ParentUUID: gpu, MemoryLimit: raised, Context: shares.ContextBytes,
		Enforce: limits.EnforceMemory | limits.EnforceCompute,
	}); err != nil {
		t.Fatal(err)
	}
	if s := p.next(t, "empty"); s.Total != raised {
		t.Errorf("the process is told of %d bytes, want %d", s.Total, raised)
	}
	if s := p.next(t, "full"); s.Pieces != fits(raised, 1, 0) || s.Error != outOfMemory {
		t.Errorf("it had %d pieces before error %d, want %d", s.Pieces, s.Error, fits(raised, 1, 0))
	}
}

// TestWithoutAValidShareThereIsNoMemory has the container's root hide its share, or make one of its own.
func TestWithoutAValidShareThereIsNoMemory(t *testing.T) {
	n := newNode(t, shared())
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	inside := "/run/sluice/uid-claim/0"
	own := t.TempDir()
	forge(t, filepath.Join(n.Dir, "shares", "uid-claim", "0", limits.LimitsFile), filepath.Join(own, limits.LimitsFile))
	for _, tc := range []struct {
		name   string
		change func(*container.Plan)
	}{
		{name: "an empty file system over the share", change: func(p *container.Plan) { p.Hidden = []string{inside} }},
		{name: "an empty file system over all shares", change: func(p *container.Plan) { p.Hidden = []string{"/run/sluice/uid-claim"} }},
		{name: "a page of the container's own", change: func(p *container.Plan) {
			p.Mounts = append(p.Mounts, container.Mount{
				HostPath: filepath.Join(own, limits.LimitsFile), ContainerPath: inside + "/limits", Options: []string{"ro", "bind"},
			})
		}},
		{name: "the ledger is missing", change: func(p *container.Plan) {
			p.Mounts = slices.DeleteFunc(p.Mounts, func(m container.Mount) bool { return m.ContainerPath == inside+"/usage" })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := plan
			changed.Mounts = slices.Clone(plan.Mounts)
			tc.change(&changed)
			s := run(t, changed).arrives(t, "failed")
			if s.Error != outOfMemory {
				t.Errorf("the program failed in %s with error %d, want %d", s.Call, s.Error, outOfMemory)
			}
			if used := n.used(t); used != 0 {
				t.Errorf("NVML sees %d bytes", used)
			}
		})
	}
}

// forge writes a page like another one that grants more.
func forge(t *testing.T, like, to string) {
	t.Helper()
	page, err := os.ReadFile(like)
	if err != nil {
		t.Fatal(err)
	}
	binary.NativeEndian.PutUint64(page[48:], 100<<30)
	if err := os.WriteFile(to, page, 0o600); err != nil { //nolint:gosec // G703: both paths are the test's own
		t.Fatal(err)
	}
}

// TestAWholeGPUBesideAShare is one container with a device that is held and one that is not.
func TestAWholeGPUBesideAShare(t *testing.T) {
	n := newNode(t, exclusive(), shared())
	p := run(t, n.prepare(t, n.Allocate("claim", device("gpu-0"), share("gpu-1"))), "40")
	if s := p.arrives(t, "ready"); s.Total < 100<<30 {
		t.Errorf("the process is told of %d bytes of the whole GPU", s.Total)
	}
	if s := p.next(t, "full"); s.Pieces != 40 || s.Error != 0 {
		t.Errorf("it had %d pieces before error %d, want 40 of 40", s.Pieces, s.Error)
	}
}

// TestTheLimitOutlivesTheAgent kills the agent: the heartbeat stands still and the share is held as before.
func TestTheLimitOutlivesTheAgent(t *testing.T) {
	n := newNode(t, shared())
	p := run(t, n.prepare(t, n.Allocate("claim", share("gpu-0"))))
	p.arrives(t, "ready")
	beats := func() uint64 {
		data, err := os.ReadFile(filepath.Join(n.Dir, "shares", limits.HeartbeatFile))
		if err != nil {
			t.Fatal(err)
		}
		return binary.NativeEndian.Uint64(data)
	}
	first := beats()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := stack.Poll(ctx, "the heart beats", func(context.Context) (bool, error) { return beats() > first, nil })
	if err != nil {
		t.Error(err)
	}
	n.agent.Kill()
	last := beats()
	if s := p.next(t, "full"); s.Pieces != fits(limit, 1, 0) || s.Error != outOfMemory {
		t.Errorf("without the agent it had %d pieces before error %d, want %d", s.Pieces, s.Error, fits(limit, 1, 0))
	}
	if beats() != last {
		t.Error("the heart beats without an agent")
	}
}
