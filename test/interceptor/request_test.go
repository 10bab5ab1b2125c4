// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A tenant that asks for a millisecond now and then does not wait for the slices of one that is never idle to end by themselves.
func requestsAreServedSoon(t *testing.T) {
	t.Parallel()
	const seconds, slice = 8, 25_000
	f := newField(t, 2)
	f.arbitrate(t)
	f.grant(t, shared("asks", 30))
	f.grant(t, shared("burns", 70))
	burns := f.enter(t, shared("burns", 70), "pace", work{us: 500}.arguments(seconds+4)...)
	f.settle(t, []use{{by: []*paced{burns}}})
	asks := f.enter(t, shared("asks", 30), "pace", fmt.Sprint(seconds), "1000", "--block", "--request", "17").result(t)
	t.Logf("%d requests waited %d us at the median, %d us at the 99th percentile, %d us at most", asks.Requests, asks.WaitP50Us, asks.WaitP99Us, asks.WaitMaxUs)
	// Half a slice would be the median wait for its end.
	if asks.Requests == 0 || asks.WaitP50Us > slice/4 {
		t.Errorf("%d requests waited %d us at the median", asks.Requests, asks.WaitP50Us)
	}
	burns.result(t)
}

// A process whose share holds memory alone has no thread of the library's, one whose compute is held has one.
func TestThreadsOfTheLibrary(t *testing.T) {
	tests := []struct {
		name, variable string
		want           int
	}{
		{name: "memory alone", variable: "SLUICE_MEMORY_LIMIT=10Gi", want: 1},
		{name: "compute", variable: "SLUICE_COMPUTE_LIMIT=50", want: 2},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := newField(t, 1)
			environment := append(f.environment(t, ""), "LD_PRELOAD="+library, "SLUICE_GROUP="+f.group, tc.variable)
			p := f.begin(t, environment, built(t, "interceptor/build/tests/tools/pace"), work{us: 500}.arguments(60)...)
			f.settle(t, []use{{by: []*paced{p}}})
			threads, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(p.command.Process.Pid), "task"))
			if err != nil {
				t.Fatalf("reading its threads: %v", err)
			}
			if len(threads) != tc.want {
				t.Errorf("the process has %d threads, want %d", len(threads), tc.want)
			}
		})
	}
}

// A process that is paced forks; its child, which has not used the GPU, becomes another program, and that is paced as well.
func TestForkAndExec(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"fork", "vfork", "clone", "exec", "thread"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newField(t, 1)
			f.arbitrate(t)
			f.grant(t, limitTo("tenant", 30))
			p := f.start(t, "", "tools/claim", f.root, "tenant", built(t, "interceptor/build/tests/tools/family"), kind)
			for s, more := p.next(t); more; s, more = p.next(t) {
				if s.Error != 0 {
					t.Errorf("at %q: error %d", s.Step, s.Error)
				}
				p.resume(t)
			}
			p.end(t)
		})
	}
}
