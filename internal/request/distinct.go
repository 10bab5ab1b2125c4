// SPDX-License-Identifier: Apache-2.0

package request

import "fmt"

// mustDiffer says whether a claim's requests must get different GPUs. Requests of one claim may share a device as far as
// the scheduler is concerned, and an overcommitted device publishes more than it has; but one claim never holds more of a
// GPU than there is. Where it is not known what the pool's GPUs have, the requests differ.
func (p *Pool) mustDiffer(requests []Request) bool {
	if p.Form != Shared || len(requests) < 2 {
		return false
	}
	smallest := p.smallestGPU() / mebi
	var memory, compute int64
	for _, request := range requests {
		memory += p.effectiveMemory(request.amounts())
		compute += p.effectiveCompute(request.amounts())
	}
	return memory > smallest || compute > p.leastCompute()
}

// warnOfDifferent says that no node has as many GPUs as requests that must differ need in all. Where one request alone needs
// too many, or the pool has no GPU, warnOfCount has said so.
func (p *Pool) warnOfDifferent(requests []Request) string {
	var needed, largestCount int64
	least := requests[0].MemoryMi
	for _, request := range requests {
		needed += request.Count
		largestCount = max(largestCount, request.Count)
		least = min(least, request.MemoryMi)
	}
	most := p.mostOnOneNode(least * mebi)
	if len(p.GPUs) == 0 || needed <= most || largestCount > most {
		return ""
	}
	return fmt.Sprintf("the containers ask for more than one GPU has, so they need %d different GPUs, but no node has more than %d "+
		"such GPUs in pool %s: the pod waits for a larger node", needed, most, p.Name)
}

// leastCompute is the compute of the pool's smallest GPU or instance in percent of a whole GPU.
func (p *Pool) leastCompute() int64 {
	least := int64(MaxCompute)
	for _, gpu := range p.GPUs {
		least = min(least, gpu.compute())
	}
	return least
}

// smallestGPU is the memory of the pool's smallest GPU; 0 where it has none.
func (p *Pool) smallestGPU() int64 {
	var least int64
	for i, gpu := range p.GPUs {
		if i == 0 || gpu.Memory < least {
			least = gpu.Memory
		}
	}
	return least
}
