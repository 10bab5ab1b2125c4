// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	// percent is what compute shares are counted in.
	percent = 100
	// settled is the GPU time after which durations are learned and what a start costs is over.
	settled = 1500 * time.Millisecond
)

// field is a fake node with shares below one directory, as the agent makes them, and the agent's arbiter in a process of its
// own.
type field struct {
	*node
	root    string
	door    *limits.Door
	arbiter *exec.Cmd
}

func newField(t *testing.T, gpus int) *field {
	t.Helper()
	f := &field{node: newNode(t, gpus), root: filepath.Join(t.TempDir(), "shares")}
	var err error
	if f.door, err = limits.New(f.root); err != nil {
		t.Fatalf("making the share directory: %v", err)
	}
	// Every container has the page, whether or not an agent is there.
	heartbeat, err := f.door.Heartbeat()
	if err != nil {
		t.Fatalf("making the heartbeat: %v", err)
	}
	if err := heartbeat.Close(); err != nil {
		t.Fatalf("closing the heartbeat: %v", err)
	}
	// On the shares' file system, or they are not believed.
	f.tool(t, "library", "--file", library)
	return f
}

func (f *field) tool(t *testing.T, command string, arguments ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), arbiterProgram, append([]string{command, "--shares", f.root}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("arbiter %s: %v\n%s", command, err, out)
	}
}

// arbitrate starts an arbiter and waits until it is one.
func (f *field) arbitrate(t *testing.T) {
	t.Helper()
	command := exec.CommandContext(t.Context(), arbiterProgram, "run", "--shares", f.root)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("opening the arbiter's output: %v", err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("starting the arbiter: %v", err)
	}
	f.arbiter = command
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("the arbiter said:\n%s", stderr.String())
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "arbitrating\n" {
		t.Fatalf("the arbiter began with %q, %v", line, err)
	}
}

// stopArbiter ends the arbiter by a signal and waits until it has ended.
func (f *field) stopArbiter(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := f.arbiter.Process.Signal(signal); err != nil {
		t.Fatalf("stopping the arbiter: %v", err)
	}
	_ = f.arbiter.Wait()
}

// claim is one tenant of the node: a share of each of its GPUs.
type claim struct {
	name string
	// compute is in hundredths of a percent.
	compute uint32
	policy  uint32
	gpus    []int
}

func (f *field) grant(t *testing.T, c claim) {
	t.Helper()
	if len(c.gpus) == 0 {
		c.gpus = []int{0}
	}
	all := f.sample(t)
	for index, gpu := range c.gpus {
		_, err := f.door.Write(limits.Share{
			ClaimUID: c.name, Index: index, UUID: all.GPUs[gpu].UUID, MemoryLimit: 16 << 30, Context: contextBytes,
			ComputeShare: c.compute, Policy: c.policy, Enforce: limits.EnforceMemory | limits.EnforceCompute,
		})
		if err != nil {
			t.Fatalf("granting %s: %v", c.name, err)
		}
	}
}

// visible has a program see only these GPUs.
func visible(gpus ...int) string {
	return "CUDA_VISIBLE_DEVICES=" + strings.Trim(strings.ReplaceAll(fmt.Sprint(gpus), " ", ","), "[]")
}

// paced is a program whose work is paced.
type paced struct {
	what    string
	command *exec.Cmd
	out     output
	stderr  bytes.Buffer
	in      io.WriteCloser
	ended   chan error
}

// output is what a program has printed so far.
type output struct {
	mu   sync.Mutex
	data []byte
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, data...)
	return len(data), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.data)
}

// paceOutcome is what the programs pace and gang print.
type paceOutcome struct {
	Error           int      `json:"error"`
	Done            uint64   `json:"done"`
	PerSecond       []uint64 `json:"perSecond"`
	LongestLaunchUs uint64   `json:"longestLaunchUs"`
	LongestGapUs    uint64   `json:"longestGapUs"`
	Requests        int      `json:"requests"`
	WaitP50Us       uint64   `json:"waitP50Us"`
	WaitP99Us       uint64   `json:"waitP99Us"`
	WaitMaxUs       uint64   `json:"waitMaxUs"`
}

// enter starts a program as the container of a claim that has these GPUs.
func (f *field) enter(t *testing.T, c claim, tool string, arguments ...string) *paced {
	t.Helper()
	all := append([]string{f.root, c.name, built(t, "interceptor/build/tests/tools", tool)}, arguments...)
	gpus := c.gpus
	if len(gpus) == 0 {
		gpus = []int{0}
	}
	return f.begin(t, append(f.environment(t, ""), visible(gpus...)), built(t, "interceptor/build/tests/tools/claim"), all...)
}

// begin starts any program.
func (f *field) begin(t *testing.T, environment []string, program string, arguments ...string) *paced {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = environment
	p := &paced{what: strings.Join(arguments[min(2, len(arguments)-1):], " "), command: command, ended: make(chan error, 1)}
	command.Stdout, command.Stderr = &p.out, &p.stderr
	var err error
	if p.in, err = command.StdinPipe(); err != nil {
		t.Fatalf("opening the input of %s: %v", p.what, err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("starting %s: %v", p.what, err)
	}
	go func() { p.ended <- command.Wait() }()
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *paced) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		t.Fatalf("signalling %s: %v", p.what, err)
	}
}

func (p *paced) kill() {
	_ = p.command.Process.Kill()
	err := <-p.ended
	p.ended <- err
}

// result waits for the end of the program, which has to be a good one.
func (p *paced) result(t *testing.T) paceOutcome {
	t.Helper()
	var got paceOutcome
	select {
	case err := <-p.ended:
		p.ended <- err
		if err != nil {
			t.Fatalf("%s ended with %v: %s%s", p.what, err, p.out.text(), p.stderr.String())
		}
	case <-time.After(programTimeout):
		t.Fatalf("%s does not end", p.what)
	}
	if p.stderr.Len() > 0 {
		t.Errorf("%s wrote to standard error: %s", p.what, p.stderr.String())
	}
	if err := json.Unmarshal([]byte(p.out.text()), &got); err != nil {
		t.Fatalf("%s printed %q: %v", p.what, p.out.text(), err)
	}
	if got.Error != 0 {
		t.Errorf("%s had CUDA error %d", p.what, got.Error)
	}
	return got
}

// sample is what the node's GPUs have done so far.
type sample struct {
	ClockNs uint64 `json:"clockNs"`
	GPUs    []struct {
		UUID      string `json:"uuid"`
		BusyNs    uint64 `json:"busyNs"`
		Processes []struct {
			PID    int    `json:"pid"`
			BusyNs uint64 `json:"busyNs"`
			Done   uint64 `json:"done"`
			Queued uint64 `json:"queued"`
		} `json:"processes"`
	} `json:"gpus"`
}

func (f *field) sample(t *testing.T) sample {
	t.Helper()
	var s sample
	if err := json.Unmarshal(f.fakegpu(t, "show", "--json"), &s); err != nil {
		t.Fatalf("reading what fakegpu shows: %v", err)
	}
	return s
}

// busy is the time that the processes have had of a GPU, and whether all of them have begun there.
func (s sample) busy(gpu int, of []*paced) (busy uint64, begun bool) {
	found := 0
	for _, p := range s.GPUs[gpu].Processes {
		if slices.ContainsFunc(of, func(q *paced) bool { return q.command.Process.Pid == p.PID }) && p.Done > 0 {
			busy += p.BusyNs
			found++
		}
	}
	return busy, found == len(of)
}

// pass lets time go by.
func (f *field) pass(t *testing.T, period time.Duration) {
	t.Helper()
	select {
	case <-time.After(period):
	case <-t.Context().Done():
		t.Fatal("the test is over")
	}
}

// use is a set of processes on a GPU.
type use struct {
	gpu int
	by  []*paced
}

// settle waits until everybody works, and a little more.
func (f *field) settle(t *testing.T, uses []use) {
	t.Helper()
	waitUntil(t, "everybody works", func() bool {
		f.pass(t, 50*time.Millisecond)
		s := f.sample(t)
		for _, u := range uses {
			if _, begun := s.busy(u.gpu, u.by); !begun {
				return false
			}
		}
		return true
	})
	f.pass(t, settled)
}

// portions are what parts of the GPUs' time each use had over a period, in percent, by the time that the GPUs counted.
func (f *field) portions(t *testing.T, period time.Duration, uses []use) []float64 {
	t.Helper()
	before := f.sample(t)
	f.pass(t, period)
	after := f.sample(t)
	had := make([]float64, len(uses))
	for i, u := range uses {
		from, _ := before.busy(u.gpu, u.by)
		to, _ := after.busy(u.gpu, u.by)
		had[i] = 100 * float64(to-from) / float64(after.ClockNs-before.ClockNs)
	}
	return had
}

// yardstick is a program that nobody paces, on a GPU of its own, with two milliseconds of work queued, as much as a paced one
// may have. What it does not reach of the GPU's time, the machine that the tests run on takes away, from all alike.
func (f *field) yardstick(t *testing.T, gpu, seconds int) use {
	t.Helper()
	arguments := []string{fmt.Sprint(seconds), "500", "--block", "--depth", "4"}
	p := f.begin(t, append(f.environment(t, ""), visible(gpu)), built(t, "interceptor/build/tests/tools/pace"), arguments...)
	return use{gpu: gpu, by: []*paced{p}}
}

// held says whether a portion is what it should be: within a point, but for what the machine took away.
func held(got, want, reach float64) bool { return got <= want+1 && got >= want*reach/100-1 }

// near says whether a figure is within so much of what it should be.
func near(got, want, within float64) bool { return got >= want-within && got <= want+within }
