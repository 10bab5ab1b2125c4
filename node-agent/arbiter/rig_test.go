// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/node-agent/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// rig is a directory of shares with a heart that does not beat: what runs in it does not look.
type rig struct {
	t       *testing.T
	door    *limits.Door
	root    string
	program string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, root: filepath.Join(t.TempDir(), "shares"), program: filepath.Join(t.TempDir(), "tenant")}
	build := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread",
		"-I", filepath.Join("..", "..", "interceptor", "include"), "-o", r.program, filepath.Join("testdata", "tenant.c"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tenant: %v\n%s", err, out)
	}
	var err error
	if r.door, err = limits.New(r.root); err != nil {
		t.Fatal(err)
	}
	return r
}

// share makes a share of GPU 0 and returns its directory.
func (r *rig) share(claim string, compute uint32, change ...func(*limits.Share)) string {
	r.t.Helper()
	share := limits.Share{
		ClaimUID: claim, UUID: "GPU-00000000-0000-0000-0000-000000000000", ComputeShare: compute * 100,
		Enforce: limits.EnforceCompute | limits.EnforceMemory,
	}
	for _, c := range change {
		c(&share)
	}
	dir, err := r.door.Write(share)
	if err != nil {
		r.t.Fatal(err)
	}
	return dir
}

// arbitrate begins an arbiter; the function that is returned ends it.
func (r *rig) arbitrate() (a *arbiter.Arbiter, stop func()) {
	r.t.Helper()
	metrics, err := arbiter.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		r.t.Fatal(err)
	}
	a, err = arbiter.Begin(arbiter.Options{Shares: r.door, Metrics: metrics, Log: logr.Discard()})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the arbiter ended with %v", err)
		}
	}
	r.t.Cleanup(stop)
	return a, stop
}

// tenant is the processes of some shares.
type tenant struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	done bool
}

func (r *rig) tenant(arguments ...string) *tenant {
	r.t.Helper()
	p := &tenant{t: r.t, cmd: exec.CommandContext(context.Background(), r.program, arguments...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		if p.out, err = p.cmd.StdoutPipe(); err == nil {
			err = p.cmd.Start()
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.kill)
	return p
}

func (p *tenant) kill() {
	if !p.done {
		p.done = true
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// had is what one share had by its own reckoning.
type had struct {
	ran, longest time.Duration
	slices       int
}

// end ends the processes and returns what each share had, in the order in which they were given.
func (p *tenant) end() (all []had) {
	p.t.Helper()
	_ = p.in.Close()
	lines := bufio.NewScanner(p.out)
	for lines.Scan() {
		var h had
		fields := strings.Fields(lines.Text())
		if _, err := fmt.Sscan(strings.Join(fields[1:], " "), &h.ran, &h.slices, &h.longest); err != nil {
			p.t.Fatalf("%q: %v", lines.Text(), err)
		}
		all = append(all, h)
	}
	p.done = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatal(err)
	}
	return all
}

// state is the state of a share's gate.
func (r *rig) state(dir string) uint32 {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "limits"))
	if err != nil {
		r.t.Fatal(err)
	}
	return binary.NativeEndian.Uint32(data[128:]) & 7
}

// eventually waits until something is true.
func (r *rig) eventually(what string, is func() bool) {
	const within = 10 * time.Second
	r.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline.C:
			r.t.Fatalf("within %v: not %s", within, what)
		case <-tick.C:
		}
	}
}

// pass lets time pass in which tenants run.
func pass(length time.Duration) { <-time.NewTimer(length).C }

// standing is what the arbiter knows of a claim's share.
func standing(t *testing.T, a *arbiter.Arbiter, claim string) arbiter.Standing {
	t.Helper()
	for _, s := range a.Snapshot() {
		if s.ClaimUID == claim {
			return s
		}
	}
	return arbiter.Standing{}
}
