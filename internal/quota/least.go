// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/internal/request"
)

const (
	classSuffix   = ".sluice.dev"
	migClass      = "mig-"
	vendorDomain  = "nvidia.com/"
	implicitClass = "deviceclass.resource.kubernetes.io/"
)

// Catalog is what may be asked for, as far as an early answer needs it.
type Catalog struct {
	// Pools are the pools.
	Pools []request.Pool
	// Foreign are DeviceClasses of somebody else with a name of Sluice's. They may mean anything.
	Foreign []string
}

// Demand is the least that requests may cost, before it is known which devices serve them. It is a Cost. A request that
// need not reach a device of Sluice, as one of a class of somebody else, counts as nothing: the judge sees what it gets.
type Demand struct {
	wishes []wish
}

// wish is one request and what may serve it.
type wish struct{ options []option }

// option is one way to serve a request: count devices, each of at least and at most so much. most names only what is known.
type option struct {
	pool        string
	count       int64
	least, most Amounts
}

// In is the least that the requests cost in the pools that a quota counts, nil meaning all.
func (d Demand) In(pools []string) Amounts {
	sum := Amounts{}
	for _, w := range d.wishes {
		sum = sum.Plus(w.in(pools))
	}
	return sum
}

func (w wish) in(pools []string) Amounts {
	var least Amounts
	for i, o := range w.options {
		if pools != nil && !slices.Contains(pools, o.pool) {
			return nil
		}
		cost := o.least.Times(o.count)
		if i == 0 {
			least = cost
			continue
		}
		least = least.Least(cost)
	}
	return least
}

// Plus is the demand of both.
func (d Demand) Plus(other Demand) Demand {
	return Demand{wishes: slices.Concat(d.wishes, other.wishes)}
}

// Zero says whether it may cost nothing.
func (d Demand) Zero() bool { return d.In(nil).Zero() }

// LeastOf is the least that an allocation of a claim may cost. allocationMode All takes one device or more; what is for
// monitoring takes none.
func (c Catalog) LeastOf(spec *resourceapi.ResourceClaimSpec) Demand {
	var demand Demand
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		switch {
		case r.Exactly != nil && ptr.Deref(r.Exactly.AdminAccess, false):
		case r.Exactly != nil:
			count := countOf(r.Exactly.AllocationMode, r.Exactly.Count)
			demand.wishes = append(demand.wishes, wish{c.options(r.Exactly.DeviceClassName, count, r.Exactly.Capacity)})
		default:
			var w wish
			for j := range r.FirstAvailable {
				s := &r.FirstAvailable[j]
				w.options = append(w.options, c.options(s.DeviceClassName, countOf(s.AllocationMode, s.Count), s.Capacity)...)
			}
			demand.wishes = append(demand.wishes, w)
		}
	}
	return demand
}

func countOf(mode resourceapi.DeviceAllocationMode, count int64) int64 {
	if mode == resourceapi.DeviceAllocationModeAll {
		return 1
	}
	return max(1, count)
}

// LeastOfExtended is the least that the extended resources of a pod may cost that Kubernetes turns into claims. Init
// containers that end reuse what the others ask for.
func (c Catalog) LeastOfExtended(pod *corev1.PodSpec) Demand {
	together, most := map[string]int64{}, map[string]int64{}
	for i := range pod.Containers {
		addExtended(together, pod.Containers[i].Resources.Limits)
	}
	for i := range pod.InitContainers {
		container := &pod.InitContainers[i]
		if ptr.Deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			addExtended(together, container.Resources.Limits)
			continue
		}
		alone := map[string]int64{}
		addExtended(alone, container.Resources.Limits)
		for class, count := range alone {
			most[class] = max(most[class], count)
		}
	}
	for class, count := range together {
		most[class] = max(most[class], count)
	}
	var demand Demand
	for class, count := range most {
		demand.wishes = append(demand.wishes, wish{c.options(class, count, nil)})
	}
	return demand
}

func addExtended(counts map[string]int64, limits corev1.ResourceList) {
	for name, quantity := range limits {
		if class := classOf(string(name)); class != "" && quantity.Sign() > 0 {
			counts[class] = add(counts[class], wholeOf(quantity))
		}
	}
}

// classOf is the class of Sluice that an extended resource means; "" for none.
func classOf(resourceName string) string {
	if class, implicit := strings.CutPrefix(resourceName, implicitClass); implicit {
		return class
	}
	name, vendors := strings.CutPrefix(resourceName, vendorDomain)
	switch {
	case vendors && name == "gpu":
		return classes.WholeGPUs
	case vendors && strings.HasPrefix(name, migClass):
		return name + classSuffix
	default:
		return ""
	}
}

// options are the ways to serve a request of a class. A class of which it is not known what it means has one that costs
// nothing.
func (c Catalog) options(class string, count int64, capacity *resourceapi.CapacityRequirements) []option {
	memory, compute := askedOf(capacity)
	var found []option
	if !slices.Contains(c.Foreign, class) {
		for i := range c.Pools {
			found = append(found, optionsIn(&c.Pools[i], class, memory, compute)...)
		}
	}
	if len(found) == 0 {
		found = []option{{least: c.unpublished(class)}}
	}
	for i := range found {
		found[i].count = count
	}
	return found
}

// unpublished is what a class costs that no pool serves yet: its name tells the profile of a MIG instance.
func (c Catalog) unpublished(class string) Amounts {
	name, ours := strings.CutSuffix(class, classSuffix)
	profile, mig := strings.CutPrefix(name, migClass)
	plain := strings.Count(profile, ".") == 1 && !strings.Contains(profile, "-")
	if slices.Contains(c.Foreign, class) || !ours || !mig || !plain {
		return nil
	}
	return Amounts{v1alpha1.QuotaMIGPrefix + profile: 1}
}

// askedOf is the amounts that a request names; 0 where it names none.
func askedOf(capacity *resourceapi.CapacityRequirements) (memory, compute int64) {
	if capacity == nil {
		return 0, 0
	}
	for name, quantity := range capacity.Requests {
		switch strings.TrimPrefix(string(name), v1alpha1.DriverName+"/") {
		case v1alpha1.CapacityMemory:
			memory = roundUpMi(wholeOf(quantity))
		case v1alpha1.CapacityCompute:
			compute = wholeOf(quantity)
		}
	}
	return memory, compute
}

func optionsIn(pool *request.Pool, class string, memory, compute int64) []option {
	switch {
	case pool.Form == request.Shared && class == classes.ForPool(pool.Name):
		return []option{share(pool, memory, compute)}
	case pool.Form == request.Exclusive && (class == classes.ForPool(pool.Name) || class == classes.WholeGPUs):
		return []option{wholeGPUOf(pool, memory)}
	case pool.Form == request.MIG:
		return instances(pool, class, memory, compute)
	default:
		return nil
	}
}

// share is a share of a GPU: what is asked for, or what the pool gives by default.
func share(pool *request.Pool, memory, compute int64) option {
	smallest, largest := memories(pool, 0)
	least, most := max(memory, pool.LeastMemory), max(memory, pool.LeastMemory)
	switch {
	case memory > 0:
	case pool.DefaultMemory > 0 && largest > 0:
		least, most = min(pool.DefaultMemory, smallest), min(pool.DefaultMemory, largest)
	case pool.DefaultMemory > 0:
		least, most = pool.LeastMemory, pool.DefaultMemory
	default:
		least, most = smallest, largest
	}
	if compute == 0 {
		compute = pool.DefaultCompute
	}
	o := option{pool: pool.Name, least: Amounts{
		v1alpha1.QuotaGPUs: 1, v1alpha1.QuotaMemory: least, v1alpha1.QuotaCompute: compute,
	}, most: Amounts{v1alpha1.QuotaCompute: compute}}
	if most > 0 {
		o.most[v1alpha1.QuotaMemory] = most
	}
	return o
}

func wholeGPUOf(pool *request.Pool, memory int64) option {
	smallest, largest := memories(pool, memory)
	o := option{pool: pool.Name, least: Amounts{
		v1alpha1.QuotaGPUs: 1, v1alpha1.QuotaMemory: max(smallest, memory), v1alpha1.QuotaCompute: wholeGPU,
	}, most: Amounts{v1alpha1.QuotaCompute: wholeGPU}}
	if largest > 0 {
		o.most[v1alpha1.QuotaMemory] = largest
	}
	return o
}

// memories are the memory of the smallest and of the largest GPU of a pool that has so much; 0 where none has.
func memories(pool *request.Pool, atLeast int64) (smallest, largest int64) {
	for i := range pool.GPUs {
		memory := pool.GPUs[i].Memory
		if memory < atLeast {
			continue
		}
		if smallest == 0 || memory < smallest {
			smallest = memory
		}
		largest = max(largest, memory)
	}
	return smallest, largest
}

func instances(pool *request.Pool, class string, memory, compute int64) []option {
	var found []option
	for i := range pool.Profiles {
		p := &pool.Profiles[i]
		if class != classes.ForProfile(p.Name) || p.Memory < memory || p.Compute < compute {
			continue
		}
		cost := wholeDevice(Device{Profile: p.Name, Memory: p.Memory, Compute: p.Compute})
		found = append(found, option{pool: pool.Name, least: cost, most: cost})
	}
	return found
}
