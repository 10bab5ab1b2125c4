// SPDX-License-Identifier: Apache-2.0

// Package arbiter measures what handing out GPU time costs: the arbiter's own thread, over real files, pipes and futexes,
// with processes that keep to their gates and drain at once.
package arbiter

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/node-agent/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	gpus, tenants = 8, 8 // tenants of each GPU
	// compute makes slices of 6 ms.
	compute = 92
	window  = 8 * time.Second
)

// BenchmarkSlices has 64 tenants of 8 GPUs that always have work.
func BenchmarkSlices(b *testing.B) {
	for b.Loop() {
		r := begin(b, "--drain", "50")
		r.measure(b)
	}
}

// BenchmarkAlone has eight tenants that always have work, each alone on its GPU.
func BenchmarkAlone(b *testing.B) {
	for b.Loop() {
		r := beginWith(b, 1, "--drain", "50")
		r.measure(b)
	}
}

// BenchmarkIdle has 64 tenants that had work once.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		r := begin(b, "--drain", "50", "--work", "1000", "--rest", "600000000")
		r.measure(b)
	}
}

// rig is an arbiter with its tenants.
type rig struct {
	arbiter *arbiter.Arbiter
	thread  string
}

func begin(b *testing.B, arguments ...string) *rig {
	b.Helper()
	return beginWith(b, tenants, arguments...)
}

func beginWith(b *testing.B, tenants int, arguments ...string) *rig {
	b.Helper()
	program := filepath.Join(b.TempDir(), "tenant")
	source := filepath.Join("..", "..", "..", "node-agent", "arbiter", "testdata", "tenant.c")
	build := exec.CommandContext(b.Context(), "cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread",
		"-I", filepath.Join("..", "..", "..", "interceptor", "include"), "-o", program, source)
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the tenants: %v\n%s", err, out)
	}
	// Shares lie on a tmpfs.
	root, err := os.MkdirTemp("/dev/shm", "sluice-arbiter-") //nolint:usetesting // a test's directory is on a disk
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(root) })
	door, err := limits.New(root)
	if err != nil {
		b.Fatal(err)
	}
	for gpu := range gpus {
		for tenant := range tenants {
			dir, err := door.Write(limits.Share{
				ClaimUID: fmt.Sprintf("claim-%d-%d", gpu, tenant), UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d", gpu),
				ComputeShare: compute, Enforce: limits.EnforceCompute | limits.EnforceMemory,
			})
			if err != nil {
				b.Fatal(err)
			}
			arguments = append(arguments, dir)
		}
	}
	metrics, err := arbiter.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{}
	if r.arbiter, err = arbiter.Begin(arbiter.Options{Shares: door, Metrics: metrics, Log: logr.Discard()}); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // it ends after the tenants
	ended := make(chan error)
	go func() { ended <- r.arbiter.Run(ctx) }()
	child := exec.CommandContext(b.Context(), program, arguments...)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = child.Wait()
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	r.find(b)
	return r
}

// find finds the arbiter's thread, the only real-time one.
func (r *rig) find(b *testing.B) {
	b.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		stats, _ := filepath.Glob("/proc/self/task/*/stat")
		for _, name := range stats {
			data, _ := os.ReadFile(name)
			_, rest, found := strings.Cut(string(data), ") ")
			if fields := strings.Fields(rest); found && len(fields) > 38 && fields[38] == "1" {
				r.thread = filepath.Base(filepath.Dir(name))
				return
			}
		}
	}
	b.Skip("the arbiter's thread is not a real-time one here")
}

// measure lets time pass and reports what the thread did meanwhile.
func (r *rig) measure(b *testing.B) {
	b.Helper()
	settle := time.NewTimer(2 * time.Second)
	<-settle.C
	slices, cpu, switches := r.slices(), r.cpu(b), r.switches(b)
	calls := r.calls(b)
	slices, cpu, switches = r.slices()-slices, r.cpu(b)-cpu, r.switches(b)-switches
	b.ReportMetric(float64(slices)/window.Seconds(), "slices/s")
	b.ReportMetric(100*cpu.Seconds()/window.Seconds(), "%core")
	b.ReportMetric(float64(switches)/window.Seconds(), "wakeups/s")
	if calls > 0 && slices > 0 {
		b.ReportMetric(float64(calls)/float64(slices), "calls/slice")
	}
}

func (r *rig) slices() (sum uint64) {
	for _, s := range r.arbiter.Snapshot() {
		sum += s.Slices
	}
	return sum
}

// cpu is what the thread has run so far.
func (r *rig) cpu(b *testing.B) time.Duration {
	b.Helper()
	data, err := os.ReadFile("/proc/self/task/" + r.thread + "/schedstat")
	if err != nil {
		b.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}

// switches is how often the thread has gone to sleep.
func (r *rig) switches(b *testing.B) int64 {
	b.Helper()
	data, err := os.ReadFile("/proc/self/task/" + r.thread + "/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, "voluntary_ctxt_switches:"); found {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("the kernel does not count switches")
	return 0
}

// calls counts the thread's system calls in the window; 0 where nobody can.
func (r *rig) calls(b *testing.B) int64 {
	b.Helper()
	seconds := strconv.Itoa(int(window.Seconds()))
	out, err := exec.CommandContext(b.Context(), "perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-t", r.thread, "sleep", seconds).CombinedOutput()
	if err != nil {
		b.Logf("system calls are not counted: %v: %s", err, out)
		<-time.NewTimer(window).C
		return 0
	}
	count, _, _ := strings.Cut(string(out), ",")
	n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
	if err != nil {
		return 0 // a thread that slept all the time has no count
	}
	return n
}
