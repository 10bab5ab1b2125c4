// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// Nothing that pacing does breaks a capture of another thread, and graphs run what was captured, no more and no less.
func TestCapturesAreLeftAlone(t *testing.T) { //nolint:tparallel // beside other tests its tenants would starve
	tests := []struct {
		name      string
		compute   uint32
		neighbour bool
		arbiter   bool
		us        uint64
	}{
		{name: "with the GPU alone", compute: 10000, arbiter: true, us: 200},
		{name: "with a cap", compute: 3000, arbiter: true, us: 200},
		{name: "beside another tenant", compute: 5000, arbiter: true, neighbour: true, us: 200},
		{name: "without an arbiter", compute: 5000, us: 200},
		{name: "with kernels longer than a slice", compute: 5000, arbiter: true, neighbour: true, us: 30000},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newField(t, 1)
			if tc.arbiter {
				f.arbitrate(t)
			}
			c := claim{name: "tenant", compute: tc.compute, policy: limits.PolicyCap}
			if tc.neighbour {
				c.policy = limits.PolicyShare
				f.grant(t, shared("other", 50))
				f.enter(t, shared("other", 50), "pace", work{us: 500}.arguments(60)...)
			}
			f.grant(t, c)
			p := f.enter(t, c, "captures", "4", fmt.Sprint(tc.us))
			waitUntil(t, "the program has come to its end", func() bool {
				f.pass(t, 100*time.Millisecond)
				return strings.HasSuffix(p.out.text(), "\n")
			})
			var s step
			if err := json.Unmarshal([]byte(p.out.text()), &s); err != nil {
				t.Fatalf("the program printed %q: %v", p.out.text(), err)
			}
			if s.Error != 0 || s.By == 0 {
				t.Errorf("after %d captures a call gave error %d", s.By, s.Error)
			}
			busy, _ := f.sample(t).busy(0, []*paced{p})
			want := uint64(s.Pieces) * tc.us * 1000
			t.Logf("%d captures, %d kernels, the GPU was busy with them for %d ms, want %d ms", s.By, s.Pieces, busy/1e6, want/1e6)
			if busy < want-want/1000 || busy > want+want/1000 {
				t.Errorf("the GPU was busy for %d us, want %d", busy/1000, want/1000)
			}
		})
	}
}
