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

// work is what a tenant launches, in the arguments of the program pace.
type work struct {
	us      int
	options string
}

// Sleeping waits and a queue that outlasts a wake-up: these machines have few cores.
func (w work) arguments(seconds int) []string {
	depth := min(64, max(4, 4000/w.us))
	text := fmt.Sprintf("%d %d --block --depth %d %s", seconds, w.us, depth, w.options)
	return strings.Fields(text)
}

func (w work) String() string { return strings.TrimSpace(fmt.Sprintf("%d us %s", w.us, w.options)) }

// cell is one tenant alone on its GPU, with a cap.
type cell struct {
	percent uint32
	work
}

func cells() []cell {
	all := []cell{}
	for _, share := range []uint32{10, 25, 30, 50, 60, 75} {
		for _, options := range []string{"", "--graph"} {
			for _, us := range []int{20, 500, 20000} {
				if options == "--graph" && us == 20000 {
					us = 5000 // four in a graph
				}
				all = append(all, cell{percent: share, work: work{us: us, options: options}})
			}
		}
	}
	return all
}

// A cap is what it says, for kernels of any length, launched one by one or in graphs: within a point of the GPU's time.
func TestCapsAreHeld(t *testing.T) {
	const gpus, seconds = 12, 9
	all := cells()
	for len(all) > 0 {
		row := all[:min(gpus, len(all))]
		all = all[len(row):]
		f := newField(t, gpus+1)
		f.arbitrate(t)
		uses := []use{}
		for gpu, c := range row {
			who := claim{name: fmt.Sprintf("tenant-%d", gpu), compute: c.percent * percent, policy: limits.PolicyCap, gpus: []int{gpu}}
			f.grant(t, who)
			uses = append(uses, use{gpu: gpu, by: []*paced{f.enter(t, who, "pace", c.arguments(seconds)...)}})
		}
		uses = append(uses, f.yardstick(t, gpus, seconds))
		f.settle(t, uses)
		got := f.portions(t, (seconds-3)*time.Second, uses)
		reach := got[len(row)]
		for i, c := range row {
			t.Logf("%3d %% of %-14s %6.2f %% (%.1f)", c.percent, c, got[i], reach)
			if !held(got[i], float64(c.percent), reach) {
				t.Errorf("%s with a cap of %d %% had %.2f %% of the GPU (unpaced %.2f %% are reached)", c, c.percent, got[i], reach)
			}
			uses[i].by[0].result(t)
		}
		f.stopArbiter(t, os.Interrupt)
	}
}
