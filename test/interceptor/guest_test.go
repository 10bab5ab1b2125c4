// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A program that never uses CUDA makes no file and pays next to nothing.
func TestNothingIsTouchedWithoutCUDA(t *testing.T) {
	n := newNode(t, 1)
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec /bin/true")
	command.Env = n.environment(t, limitText)
	if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("a shell under the library: %v, %q", err, out)
	}
	if _, err := os.Stat(n.ledgerDir()); !os.IsNotExist(err) {
		t.Errorf("a program that does not use CUDA made %s (%v)", n.ledgerDir(), err)
	}
	var cost struct {
		LeastWithout, LeastWith, MedianWithout, MedianWith float64
	}
	n.output(t, "", &cost, "tools/startup", library, "300", "/bin/true")
	t.Logf("in microseconds: %+v", cost)
	// The least of many is what the program costs on a machine that has other work too.
	if added := cost.LeastWith - cost.LeastWithout; added >= 200 {
		t.Errorf("the library adds %.0f µs to /bin/true, want less than 200", added)
	}
}

// A second preloaded library before or behind ours, and programs built with sanitizers, work as without it.
func TestWorksBesideOthers(t *testing.T) {
	t.Parallel()
	second := built(t, "interceptor/build/tests/second.so")
	tests := []struct {
		name, program string
		preload       string
	}{
		{name: "a library before ours", program: "link/linear", preload: second + ":" + library},
		{name: "a library behind ours", program: "link/linear", preload: library + ":" + second},
		{name: "a program with the address sanitizer", program: "asan/linear", preload: library},
		{name: "a program with the thread sanitizer", program: "tsan/linear", preload: library},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			p := n.startWith(t, n.environment(t, limitText), []string{"LD_PRELOAD=" + tc.preload}, tc.program)
			for s, more := p.next(t); more; s, more = p.next(t) {
				expectation{piece: 256 * mib}.check(t, s, n.seen(t, 0), n.ledger(t))
				p.resume(t)
			}
			p.end(t)
		})
	}
}

// The first process of a group fixes the limit; another limit gets nothing and one line that says why.
func TestGroupAgreesOnItsLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	first := n.start(t, limitText, "link/linear", "2")
	if s, _ := first.next(t); s.Step != "ready" {
		t.Fatalf("the first process is at %q", s.Step)
	}
	second := n.start(t, "11Gi", "link/linear", "2")
	if !second.out.Scan() {
		t.Fatal("the second process said nothing")
	}
	if want := fmt.Sprintf(`"error":%d`, outOfMemory); !strings.Contains(second.out.Text(), "failed") || !strings.Contains(second.out.Text(), want) {
		t.Errorf("the second process printed %s, want it to fail with %s", second.out.Text(), want)
	}
	if err := second.in.Close(); err != nil {
		t.Errorf("closing the second's input: %v", err)
	}
	if err := second.command.Wait(); err == nil {
		t.Error("the second process ended well")
	}
	if lines := strings.Count(second.stderr.String(), "\n"); lines != 1 {
		t.Errorf("%d lines on standard error, want 1: %q", lines, second.stderr.String())
	}
	first.stop(t)
}

// Every start method of Python's multiprocessing leaves the ledger empty.
func TestPythonsStartMethods(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	for _, method := range []string{"fork", "forkserver", "spawn"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			command := exec.CommandContext(t.Context(), python, built(t, "interceptor/tests/programs/start_methods.py"), method)
			command.Env = n.environment(t, limitText)
			if out, err := command.CombinedOutput(); err != nil || string(out) != "good\n" {
				t.Errorf("python: %v, %q", err, out)
			}
			if l, seen := n.ledger(t), n.seen(t, 0).UsedBytes; l.Held != 0 || seen != 0 {
				t.Errorf("afterwards the ledger has %d, NVML sees %d", l.Held, seen)
			}
		})
	}
}
