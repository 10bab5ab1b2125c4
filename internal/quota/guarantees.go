// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
)

// Capacities are what pools publish by what is decided for their GPUs: memory, compute, and gpus (shares or GPUs) where
// they are not divided. How many MIG instances fit depends on the profiles, so they are not in it.
func Capacities(nodes []v1alpha1.GPUNode) map[string]Amounts {
	pools := map[string]Amounts{}
	for i := range nodes {
		node := &nodes[i]
		memory := map[string]int64{}
		for j := range node.Status.GPUs {
			memory[node.Status.GPUs[j].UUID] = node.Status.GPUs[j].MemoryBytes()
		}
		for _, decision := range node.Decisions() {
			bytes, reported := memory[decision.UUID]
			if reported {
				pools[decision.Pool] = pools[decision.Pool].Plus(capacityOf(decision, bytes))
			}
		}
	}
	return pools
}

func capacityOf(decision v1alpha1.GPUDecision, bytes int64) Amounts {
	amounts := Amounts{
		v1alpha1.QuotaMemory:  devices.PublishedMemory(bytes, max(wholeGPU, decision.MemoryPercent)),
		v1alpha1.QuotaCompute: int64(max(wholeGPU, decision.ComputePercent)),
	}
	switch {
	case decision.Partitioning == v1alpha1.PartitioningMIG:
	case decision.Sharing == v1alpha1.SharingExclusive:
		amounts[v1alpha1.QuotaGPUs] = 1
	case decision.MaxTenants > 0:
		amounts[v1alpha1.QuotaGPUs] = int64(decision.MaxTenants)
	default:
		amounts[v1alpha1.QuotaGPUs] = int64(v1alpha1.DefaultMaxTenants)
	}
	return amounts
}

// OverGuaranteed says how far what is guaranteed is above what a pool has; "" where it is not. Guarantees of several
// pools are held against all of them together, with those of fewer of the same pools.
func OverGuaranteed(pool string, domains map[string]*Domain, capacities map[string]Amounts) string {
	var all []group
	for _, name := range sortedKeys(domains) {
		all = append(all, domains[name].groups()...)
	}
	var sentences []string
	seen := map[string]bool{}
	for _, g := range all {
		scope := strings.Join(g.pools, ", ")
		if !slices.Contains(g.pools, pool) || seen[scope] {
			continue
		}
		seen[scope] = true
		sentences = append(sentences, overIn(g.pools, all, capacities)...)
	}
	return strings.Join(sentences, "; ")
}

// overIn holds all that must come from some pools against what they have.
func overIn(pools []string, all []group, capacities map[string]Amounts) []string {
	guaranteed, has := Amounts{}, Amounts{}
	for _, g := range all {
		if subset(g.pools, pools) {
			guaranteed = guaranteed.Plus(g.capacity())
		}
	}
	for i, pool := range pools {
		if i == 0 {
			has = maps.Clone(capacities[pool])
			continue
		}
		has = has.Plus(capacities[pool])
	}
	var sentences []string
	for _, name := range guaranteed.Names() {
		if strings.HasPrefix(name, v1alpha1.QuotaMIGPrefix) || guaranteed[name] <= has[name] {
			continue
		}
		sentences = append(sentences, fmt.Sprintf("%s: quotas guarantee %s of %s, which has %s", name,
			Format(name, guaranteed[name]), strings.Join(pools, ", "), Format(name, has[name])))
	}
	return sentences
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
