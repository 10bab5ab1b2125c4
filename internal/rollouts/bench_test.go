// SPDX-License-Identifier: Apache-2.0

package rollouts_test

import (
	"fmt"
	"testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/rollouts"
	"github.com/sluice-gpu/sluice/test/builders"
)

// A thousand nodes of eight GPUs are planned for each change around a pool.
func BenchmarkMake(b *testing.B) {
	halves := builders.MakePool("p").Static("3g.40gb", 2).Obj()
	for _, bench := range []struct {
		name string
		pool *v1alpha1.GPUPool
	}{
		{"nothing to do", halves},
		{"a new layout", builders.MakePool("p").Static("1g.10gb", 7).Obj()},
		{"a layout that is refused", builders.MakePool("p").Static("3g.40gb", 3).Obj()},
		{"another form", builders.MakePool("p").Obj()},
	} {
		var nodes []assign.Node
		for i := range 1000 {
			name := fmt.Sprintf("n%d", i)
			var decisions []v1alpha1.GPUDecision
			for minor := range 8 {
				d := assign.Decision(halves, builders.UUID(name, minor))
				d.Instances = places("3g.40gb", 0, 4)
				decisions = append(decisions, d)
			}
			nodes = append(nodes, assign.Node{
				GPUNode: builders.MakeGPUNode(name, 8).Decided(decisions...).Obj(), Labels: map[string]string{builders.PoolNodeLabel: "p"},
			})
		}
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				rollouts.Make(rollouts.Input{Pool: bench.pool, Nodes: nodes, Now: now})
			}
		})
	}
}
