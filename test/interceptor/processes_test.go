// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"fmt"
	"strings"
	"testing"
)

// Many processes at the edge: exactly what fits, in every round.
func TestRaceAtTheEdge(t *testing.T) {
	const processes, rounds, blockMiB = 16, 200, 1024
	n := newNode(t, 1)
	limitMiB := uint64(16384)
	var got struct {
		Rounds, Least, Most, OtherErrors, Broken int
	}
	n.output(t, fmt.Sprintf("%dMi", limitMiB), &got, "tools/race", fmt.Sprint(processes), fmt.Sprint(rounds), fmt.Sprint(blockMiB))
	want := int((limitMiB*mib - processes*contextBytes) / (blockMiB * mib))
	if got.Least != want || got.Most != want || got.OtherErrors != 0 || got.Broken != 0 {
		t.Errorf("of %d processes %d to %d got a block in a round, want exactly %d; %d other errors, %d broken",
			processes, got.Least, got.Most, want, got.OtherErrors, got.Broken)
	}
	if l := n.ledger(t); l.Held > 0 && l.Slots == 0 {
		t.Errorf("the ledger holds %d bytes for nobody", l.Held)
	}
}

type storm struct {
	Kills, Calls, Refused, Errors        int
	P50Us, P99Us, LongestUs, RecoveredMs int
}

// Processes killed at any moment: nobody waits for a corpse, and its bytes come back.
func TestKillStorm(t *testing.T) {
	seconds := "60"
	if testing.Short() {
		seconds = "5"
	}
	arguments := []string{"8", seconds, "600", "50", "9000"}
	var native, under storm
	n := newNode(t, 1)
	n.output(t, "", &native, "tools/storm", arguments...)
	n.output(t, limitText, &under, "tools/storm", arguments...)
	t.Logf("native %+v, under the library %+v", native, under)
	if under.Errors != 0 || under.Calls == 0 {
		t.Errorf("%d of %d calls gave an error other than out of memory", under.Errors, under.Calls)
	}
	// The floor is what the scheduler of a busy machine adds to any call.
	if most := max(native.P99Us*3/2, 2000); under.P99Us > most {
		t.Errorf("an allocation takes %d µs at the 99th percentile, want at most %d; without the library %d", under.P99Us, most, native.P99Us)
	}
	if under.RecoveredMs < 0 || under.RecoveredMs >= 1000 {
		t.Errorf("after the last kill it took %d ms to have the memory again, want less than 1000", under.RecoveredMs)
	}
	if seen := n.seen(t, 0).UsedBytes; seen != 0 {
		t.Errorf("NVML sees %d bytes after all have ended", seen)
	}
}

// Memory that outlives its maker stays charged while somebody maps it, and no longer.
func TestChainOfExports(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"vmm", "ipc"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			p := n.start(t, limitText, "tools/chain", kind, "512", "100")
			for s, more := p.next(t); more; s, more = p.next(t) {
				seen, l := n.seen(t, 0).UsedBytes, n.ledger(t)
				if seen > limit || l.Held > limit {
					t.Errorf("at %q NVML sees %d and the ledger has %d, above the limit %d", s.Step, seen, l.Held, limit)
				}
				if l.Held < seen {
					t.Errorf("at %q the ledger has %d, NVML sees %d", s.Step, l.Held, seen)
				}
				if s.Step == "full" && (s.Error != outOfMemory || s.Pieces == 0 || limit-l.Held >= 2*518*mib) {
					t.Errorf("the chain ended after %d pieces with error %d, the ledger at %d", s.Pieces, s.Error, l.Held)
				}
				if s.Step == "empty" && (s.Error != 0 || l.Held != contextBytes) {
					t.Errorf("after giving all back (error %d) the ledger has %d, want %d", s.Error, l.Held, contextBytes)
				}
				p.resume(t)
			}
			p.end(t)
		})
	}
}

// A hundred thousand cycles in changing sizes and ways leave nothing, in one thread, in many, and in many at the limit.
func TestNoDrift(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, limit, threads string
	}{
		{name: "one thread", limit: limitText, threads: "1"},
		{name: "many threads", limit: limitText, threads: "8"},
		{name: "many threads at the limit", limit: "640Mi", threads: "8"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			p := n.start(t, tc.limit, "tools/drift", "100000", tc.threads)
			for s, more := p.next(t); more; s, more = p.next(t) {
				if s.Error != 0 {
					t.Errorf("a call gave error %d", s.Error)
				}
				if seen, l := n.seen(t, 0).UsedBytes, n.ledger(t); seen != contextBytes || l.Held != contextBytes {
					t.Errorf("at %q NVML sees %d and the ledger has %d, want the context's %d", s.Step, seen, l.Held, contextBytes)
				}
				p.resume(t)
			}
			p.end(t)
		})
	}
}

// Whatever a process does to multiply, what it holds stays charged to it alone.
func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"fork", "vfork", "clone", "closes", "exec", "thread"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			p := n.start(t, limitText, "tools/family", kind)
			for s, more := p.next(t); more; s, more = p.next(t) {
				want := contextBytes + 1024*mib
				if s.Step == "after" && kind == "exec" {
					want = 0
				}
				if s.Error != 0 {
					t.Errorf("at %q: error %d", s.Step, s.Error)
				}
				if seen := n.seen(t, 0).UsedBytes; seen != want {
					t.Errorf("at %q NVML sees %d, want %d", s.Step, seen, want)
				}
				if l := n.ledger(t); l.Held != want && kind != "exec" {
					t.Errorf("at %q the ledger has %d, want %d", s.Step, l.Held, want)
				}
				p.resume(t)
			}
			p.end(t)
			var got struct {
				Rounds, Least, Most, OtherErrors, Broken int
			}
			n.output(t, limitText, &got, "tools/race", "1", "1", "9500")
			if got.Least != 1 {
				t.Error("what the process held did not come back when it had ended")
			}
		})
	}
}

// Wrong calls give the driver's errors, not ours.
func TestErrorsAreTheDrivers(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	n.sameLines(t, "tools/errors", 80)
}

// Look-ups answer as the driver does: the same variant, status and error, for every name, version and flag.
func TestLookupsAreTheDrivers(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	n.sameLines(t, "tools/lookup", 30000)
}

// sameLines runs a program natively and under the library, which has to change nothing in what it prints.
func (n *node) sameLines(t *testing.T, program string, least int) {
	t.Helper()
	want := strings.Split(string(n.text(t, "", program)), "\n")
	got := strings.Split(string(n.text(t, limitText, program)), "\n")
	if len(want) < least || len(got) != len(want) {
		t.Fatalf("%d answers with the library, %d without", len(got), len(want))
	}
	differ := 0
	for i := range want {
		if got[i] == want[i] {
			continue
		}
		if differ++; differ <= 10 {
			t.Errorf("the driver says  %s\n        the library   %s", want[i], got[i])
		}
	}
	if differ > 10 {
		t.Errorf("%d of %d answers differ", differ, len(want))
	}
}
