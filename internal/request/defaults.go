// SPDX-License-Identifier: Apache-2.0

package request

import "slices"

// WithDefaults gives containers that leave an amount out what defaults says for the pool that their GPUs come from:
// memory in bytes and compute in percent, 0 for nothing. Only shares have amounts that can be left out.
func WithDefaults(asks Asks, pools []Pool, defaults func(pool string) (memory, compute int64)) Asks {
	pool, err := choose(asks.Pool, pools)
	if err != nil || pool.Form != Shared {
		return asks
	}
	memory, compute := defaults(pool.Name)
	memoryMi := min(memory/mebi, MaxMemoryMi)
	if memory%mebi > 0 {
		memoryMi = min(memoryMi+1, MaxMemoryMi)
	}
	asks.Containers = slices.Clone(asks.Containers)
	for i := range asks.Containers {
		amounts := &asks.Containers[i].Amounts
		if amounts.MemoryMi == 0 {
			amounts.MemoryMi = memoryMi
		}
		if amounts.Compute == 0 {
			amounts.Compute = min(compute, MaxCompute)
		}
	}
	return asks
}
