// SPDX-License-Identifier: Apache-2.0

package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/shares"
)

// Form is how the devices of a pool are given out, as far as a claim is concerned.
type Form string

const (
	// Shared pools give shares of whole GPUs, or of the MIG instances of a layout.
	Shared Form = "Shared"
	// Exclusive pools give whole GPUs.
	Exclusive Form = "Exclusive"
	// MIG pools give MIG instances.
	MIG Form = "MIG"
)

// Pool is what admission knows of a GPUPool and of the GPUs it holds.
type Pool struct {
	// Name is the pool's name.
	Name string
	// Default is true where pods that name no pool belong here.
	Default bool
	// Deleting is true while the pool waits for its last tenants.
	Deleting bool
	// Form is how its devices are given out.
	Form Form
	// DefaultMemory is the memory in bytes of a share that names none; 0: the whole GPU's.
	DefaultMemory int64
	// DefaultCompute is the compute in percent of a share that names none.
	DefaultCompute int64
	// LeastMemory is the smallest share in bytes in which a process can start; 0 where shares are not held inside processes.
	LeastMemory int64
	// GPUs are those the pool holds and gives to new tenants.
	GPUs []GPU
	// Changing is how many GPUs the pool holds in another form than it wants: they give nothing yet.
	Changing int
	// NamedProfiles is true where a MIG profile can be asked for by name, as nvidia.com/mig-<profile>.
	NamedProfiles bool
	// Profiles are the MIG profiles of these GPUs' boards, or of their layouts; only in MIG pools.
	Profiles []Profile
}

// GPU is one GPU of a pool, or one MIG instance where the pool shares the instances of a layout.
type GPU struct {
	// Node is the name of its node.
	Node string
	// Product is its product name.
	Product string
	// Memory is what CUDA can use of it, in bytes: the most that one share gets, whatever the overcommitment.
	Memory int64
	// Compute is what it has in percent of a whole GPU, the most that one share gets; 0: it is a whole one.
	Compute int64
}

// Profile is a MIG profile of a board.
type Profile struct {
	// Product is the board.
	Product string
	// Name is the profile's name.
	Name string
	// Memory is what one instance has, in bytes.
	Memory int64
	// Compute is what one instance has in percent of a whole GPU.
	Compute int64
}

// Gather makes the facts about pools from the objects that describe them, in the order of their names. GPUs that are
// about to leave a pool do not count: nothing new is placed on them.
func Gather(pools []v1alpha1.GPUPool, nodes []v1alpha1.GPUNode) []Pool {
	gathered := make([]Pool, 0, len(pools))
	index := map[string]int{}
	for i := range pools {
		index[pools[i].Name] = len(gathered)
		gathered = append(gathered, fromObject(&pools[i]))
	}
	for i := range nodes {
		node := &nodes[i]
		for _, decision := range node.Decisions() {
			at, known := index[decision.Pool]
			if !known || (decision.Taint != "" && !assign.OfRollout(decision.Taint)) {
				continue
			}
			gathered[at].add(node, decision)
		}
	}
	slices.SortFunc(gathered, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	return gathered
}

// add counts one decided GPU in, if its agent has reported it.
func (p *Pool) add(node *v1alpha1.GPUNode, decision v1alpha1.GPUDecision) {
	i := slices.IndexFunc(node.Status.GPUs, func(g v1alpha1.GPUStatus) bool { return g.UUID == decision.UUID })
	if i < 0 {
		return
	}
	if decision.Taint != "" || formOfDecision(decision) != p.Form {
		p.Changing++
		return
	}
	status := &node.Status.GPUs[i]
	switch static := assign.StrategyOf(decision) == v1alpha1.MIGStatic; {
	case static && p.Form == Shared:
		p.addInstances(node, status.Product, decision)
	case static:
		p.GPUs = append(p.GPUs, wholeGPU(node, status))
		p.addProfiles(node, status.Product, func(name string) bool { return lists(decision, name) })
	default:
		gpu := wholeGPU(node, status)
		// The GPUs of a node are mostly alike: their board's profiles are read once.
		alike := len(p.GPUs) > 0 && p.GPUs[len(p.GPUs)-1] == gpu
		p.GPUs = append(p.GPUs, gpu)
		if p.Form == MIG && !alike {
			p.addProfiles(node, status.Product, func(string) bool { return true })
		}
	}
}

func wholeGPU(node *v1alpha1.GPUNode, status *v1alpha1.GPUStatus) GPU {
	return GPU{Node: node.Name, Product: status.Product, Memory: wholeMi(status.MemoryBytes())}
}

// lists says whether a layout has instances of a profile.
func lists(decision v1alpha1.GPUDecision, profile string) bool {
	return slices.ContainsFunc(decision.Instances, func(i v1alpha1.MIGPlacement) bool { return i.Profile == profile })
}

// addInstances adds each instance of a layout that is shared as a GPU is.
func (p *Pool) addInstances(node *v1alpha1.GPUNode, product string, decision v1alpha1.GPUDecision) {
	for _, instance := range decision.Instances {
		for j := range node.Status.Profiles {
			reported := &node.Status.Profiles[j]
			if reported.Product == product && reported.Name == instance.Profile {
				p.GPUs = append(p.GPUs, GPU{
					Node: node.Name, Product: product, Memory: wholeMi(reported.MemoryBytes()), Compute: int64(reported.Compute),
				})
			}
		}
	}
}

// addProfiles adds what a node reports of those of a board's profiles that the pool gives.
func (p *Pool) addProfiles(node *v1alpha1.GPUNode, product string, given func(profile string) bool) {
	for j := range node.Status.Profiles {
		reported := &node.Status.Profiles[j]
		if reported.Product != product || !given(reported.Name) {
			continue
		}
		profile := Profile{
			Product: reported.Product, Name: reported.Name,
			Memory: wholeMi(reported.MemoryBytes()), Compute: int64(reported.Compute),
		}
		if !slices.Contains(p.Profiles, profile) {
			p.Profiles = append(p.Profiles, profile)
		}
	}
}

// wholeMi rounds down to what is published: devices are given out in steps of 1Mi.
func wholeMi(bytes int64) int64 { return bytes / mebi * mebi }

func fromObject(pool *v1alpha1.GPUPool) Pool {
	gathered := Pool{
		Name:     pool.Name,
		Default:  pool.IsDefault(),
		Deleting: !pool.DeletionTimestamp.IsZero(),
		Form:     formOf(pool),
	}
	if gathered.Form == Shared && shares.Held(pool.SharingMode()) {
		gathered.LeastMemory = shares.MinMemoryBytes
	}
	if memory := pool.Spec.Sharing.DefaultMemory; memory != nil {
		gathered.DefaultMemory = max(memory.Value(), gathered.LeastMemory)
	}
	if compute := pool.Spec.Sharing.DefaultCompute; compute != nil {
		gathered.DefaultCompute = int64(*compute)
	}
	return gathered
}

func formOf(pool *v1alpha1.GPUPool) Form {
	return form(assign.Partitioning(pool), pool.SharingMode())
}

func formOfDecision(d v1alpha1.GPUDecision) Form { return form(d.Partitioning, d.Sharing) }

func form(partitioning v1alpha1.PartitioningType, mode v1alpha1.SharingMode) Form {
	exclusive := mode == v1alpha1.SharingExclusive
	switch {
	case partitioning == v1alpha1.PartitioningMIG && (exclusive || mode == ""):
		return MIG
	case exclusive:
		return Exclusive
	default:
		return Shared
	}
}

// UnknownPoolError says that the pool a pod needs is not among those known. A pool created a moment ago may be: look
// again before the pod is refused.
type UnknownPoolError struct {
	// Sentence is what the tenant reads.
	Sentence string
}

// Error is the sentence.
func (e *UnknownPoolError) Error() string { return e.Sentence }

// choose finds the pool that a pod's GPUs come from.
func choose(named string, pools []Pool) (*Pool, error) {
	if named != "" {
		return chooseNamed(named, pools)
	}
	open := openPools(pools)
	switch len(open) {
	case 0:
		sentence := "there is no GPUPool yet: the platform team has to create one"
		if len(pools) > 0 {
			sentence = fmt.Sprintf("the only pools are being deleted (%s): the platform team has to create another one", names(pools))
		}
		return nil, &UnknownPoolError{Sentence: sentence}
	case 1:
		return find(pools, open[0].Name), nil
	}
	var defaults []Pool
	for _, pool := range open {
		if pool.Default {
			defaults = append(defaults, pool)
		}
	}
	switch len(defaults) {
	case 0:
		return nil, fmt.Errorf("the pod names no pool, and of the pools %s none says default: true: "+
			"add the label %s: %s, or another one of them, to the pod", names(open), v1alpha1.PoolLabel, open[0].Name)
	case 1:
		return find(pools, defaults[0].Name), nil
	default:
		return nil, fmt.Errorf("the pod names no pool, and more than one says default: true (%s): "+
			"add the label %s: %s, or another one, to the pod", names(defaults), v1alpha1.PoolLabel, defaults[0].Name)
	}
}

func chooseNamed(named string, pools []Pool) (*Pool, error) {
	others := "there is no other pool"
	if open := openPools(pools); len(open) > 0 {
		others = fmt.Sprintf("write one of these in the label %s: %s", v1alpha1.PoolLabel, names(open))
	}
	pool := find(pools, named)
	switch {
	case pool == nil:
		return nil, &UnknownPoolError{Sentence: fmt.Sprintf("pool %q does not exist: %s", named, others)}
	case pool.Deleting:
		return nil, &UnknownPoolError{Sentence: fmt.Sprintf("pool %q is being deleted and takes no new pods: %s", named, others)}
	default:
		return pool, nil
	}
}

// openPools are the pools that take new pods.
func openPools(pools []Pool) []Pool {
	return slices.DeleteFunc(slices.Clone(pools), func(p Pool) bool { return p.Deleting })
}

func find(pools []Pool, name string) *Pool {
	i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &pools[i]
}

// names lists pools by name, the first ten of them.
func names(pools []Pool) string {
	const shown = 10
	listed := make([]string, 0, shown)
	for _, pool := range pools[:min(len(pools), shown)] {
		listed = append(listed, pool.Name)
	}
	text := strings.Join(listed, ", ")
	if more := len(pools) - len(listed); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// largest is the memory of the pool's largest GPU; 0 where it has none.
func (p *Pool) largest() int64 {
	var most int64
	for _, gpu := range p.GPUs {
		most = max(most, gpu.Memory)
	}
	return most
}

// mostCompute is the compute of the pool's largest GPU or instance in percent of a whole GPU.
func (p *Pool) mostCompute() int64 {
	var most int64
	for _, gpu := range p.GPUs {
		most = max(most, gpu.compute())
	}
	return most
}

func (g GPU) compute() int64 { return cmp.Or(g.Compute, MaxCompute) }

// mostOnOneNode is how many GPUs with at least so much memory the best node has.
func (p *Pool) mostOnOneNode(memory int64) int64 {
	counts := map[string]int64{}
	var most int64
	for _, gpu := range p.GPUs {
		if gpu.Memory >= memory {
			counts[gpu.Node]++
			most = max(most, counts[gpu.Node])
		}
	}
	return most
}
