// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// neighbour is a tenant of a GPU that it shares, and what it should have there.
type neighbour struct {
	percent uint32
	policy  uint32
	work
	// processes of the claim; 0 is one.
	processes int
	want      float64
	// within is how far off it may be, in percent of what all have; 0 is one.
	within float64
}

func short(percent uint32, want float64) neighbour {
	return neighbour{percent: percent, work: work{us: 500}, want: want}
}

func capped(n neighbour) neighbour {
	n.policy = limits.PolicyCap
	return n
}

func doing(n neighbour, w work) neighbour {
	n.work = w
	return n
}

// crowd is eight tenants of an eighth each, whose kernels are of all lengths.
func crowd() []neighbour {
	all := []neighbour{}
	for i := range 8 {
		n := short(12, 12.5)
		n.us = []int{100, 500, 500, 5000}[i%4]
		all = append(all, n)
	}
	return all
}

// Tenants of one GPU have what they asked for, and of what nobody wants their part.
func TestTenantsHaveTheirShares(t *testing.T) {
	const seconds = 9
	tests := []struct {
		name    string
		tenants []neighbour
	}{
		{name: "two halves", tenants: []neighbour{short(50, 50), short(50, 50)}},
		{name: "30 and 60 percent leave a tenth, which is shared as the rest is", tenants: []neighbour{short(30, 33.33), short(60, 66.67)}},
		{name: "caps of 30 and 60 percent leave a tenth idle", tenants: []neighbour{capped(short(30, 30)), capped(short(60, 60))}},
		{name: "short kernels beside long ones", tenants: []neighbour{doing(short(30, 30), work{us: 20}), doing(short(70, 70), work{us: 20000})}},
		{name: "graphs beside kernels", tenants: []neighbour{doing(short(25, 25), work{us: 100, options: "--graph"}), short(75, 75)}},
		{name: "a cap beside a share", tenants: []neighbour{capped(short(10, 10)), short(50, 90)}},
		{name: "more asked for than there is", tenants: []neighbour{short(100, 50), short(100, 50)}},
		{name: "best effort has what one percent would have", tenants: []neighbour{
			// Of its slices there are a handful in this time: one more or less is a quarter of a percent, and the first is a gift.
			{percent: 99, work: work{us: 500}, want: 99, within: 2}, short(0, 1),
		}},
		{name: "four processes of a share have it together", tenants: []neighbour{
			// Each measures the others' time with its own, so that they are charged the whole slice, its end included.
			{percent: 40, work: work{us: 500}, processes: 4, want: 40, within: 2.5}, short(60, 60),
		}},
		{name: "one alone has all", tenants: []neighbour{short(30, 100)}},
		{name: "eight tenants", tenants: crowd()},
	}
	f := newField(t, len(tests)+1)
	f.arbitrate(t)
	uses := []use{}
	for gpu, tc := range tests {
		for i, n := range tc.tenants {
			who := claim{name: fmt.Sprintf("tenant-%d-%d", gpu, i), compute: n.percent * percent, policy: n.policy, gpus: []int{gpu}}
			f.grant(t, who)
			u := use{gpu: gpu}
			for range max(1, n.processes) {
				u.by = append(u.by, f.enter(t, who, "pace", n.arguments(seconds)...))
			}
			uses = append(uses, u)
		}
	}
	uses = append(uses, f.yardstick(t, len(tests), seconds))
	f.settle(t, uses)
	got := f.portions(t, (seconds-3)*time.Second, uses)
	reach := got[len(got)-1]
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			sum, want, within := 0.0, 0.0, 0.01
			for i, n := range tc.tenants {
				t.Logf("%3d %% (%s) has %6.2f %%, want %.2f %% (%.1f)", n.percent, n.work, got[i], n.want, reach)
				sum, want, within = sum+got[i], want+n.want, max(within, n.within/100)
			}
			// What changing tenants costs is taken from all alike.
			for i, n := range tc.tenants {
				if !near(got[i]/sum, n.want/want, within) {
					t.Errorf("the tenant of %d %% had %.2f of what all had, want %.2f", n.percent, got[i]/sum, n.want/want)
				}
				if n.policy == limits.PolicyCap && got[i] > n.want+1 {
					t.Errorf("the tenant with a cap of %d %% had %.2f %% of the GPU", n.percent, got[i])
				}
			}
			if least := want * reach / 100 * 0.96; sum < least {
				t.Errorf("together they had %.2f %% of the GPU, want at least %.2f", sum, least)
			}
			got = got[len(tc.tenants):]
		})
	}
	for _, u := range uses {
		for _, p := range u.by {
			p.result(t)
		}
	}
	f.stopArbiter(t, os.Interrupt)
}

// However work comes to the GPU, it is held.
func TestEveryWayToLaunchIsHeld(t *testing.T) {
	const seconds, share = 9, 30
	tests := []string{
		"", "--graph", "--coop", "--ex", "--legacy", "--per-thread", "--streams 8", "--threads 4", "--threads 4 --streams 4",
		"--threads 2 --per-thread", "--threads 3 --graph",
	}
	f := newField(t, len(tests)+3)
	f.arbitrate(t)
	uses := []use{}
	for gpu, options := range tests {
		who := claim{name: fmt.Sprintf("tenant-%d", gpu), compute: share * percent, policy: limits.PolicyCap, gpus: []int{gpu}}
		f.grant(t, who)
		uses = append(uses, use{gpu: gpu, by: []*paced{f.enter(t, who, "pace", work{us: 300, options: options}.arguments(seconds)...)}})
	}
	// One process on two devices has its share on both.
	last := len(tests)
	both := claim{name: "both", compute: share * percent, policy: limits.PolicyCap, gpus: []int{last, last + 1}}
	f.grant(t, both)
	p := []*paced{f.enter(t, both, "pace", work{us: 300, options: "--threads 2 --devices 2"}.arguments(seconds)...)}
	uses = append(uses, use{gpu: last, by: p}, use{gpu: last + 1, by: p})
	uses = append(uses, f.yardstick(t, last+2, seconds))
	f.settle(t, uses)
	got := f.portions(t, (seconds-3)*time.Second, uses)
	reach := got[len(got)-1]
	for i, u := range uses[:len(uses)-1] {
		t.Logf("%-60s %6.2f %% (%.1f)", u.by[0].what, got[i], reach)
		// The default streams of several threads cannot be asked how far they are: what is left of them is estimated.
		estimated := strings.Contains(u.by[0].what, "--threads 2 --per-thread") && got[i] <= share+2
		if !held(got[i], share, reach) && !estimated {
			t.Errorf("%s had %.2f %% of GPU %d, want %d %%", u.by[0].what, got[i], u.gpu, share)
		}
	}
	for _, u := range uses {
		u.by[0].result(t)
	}
}
