// SPDX-License-Identifier: Apache-2.0

// Package poolstatus says what a GPUPool's status is: counts, and conditions with sentences that tell what to do.
package poolstatus

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// facts are what a look at all nodes tells about one pool.
type facts struct {
	pool *v1alpha1.GPUPool

	// What the selectors find.
	gpuNodes      int            // nodes with an agent
	matchingNodes int            // of them, those that nodeSelector matches
	offered       map[string]int // GPUs of matching nodes, by product
	selected      int            // GPUs that both selectors match
	contested     []place        // of them, those that another pool holds

	// What the pool holds.
	nodes       int
	held        int
	published   int
	allocated   int
	physical    int64
	offeredMem  int64 // published memory
	usedMem     int64
	use         Use
	lingering   int     // held by nobody or another pool, but still published and used as this pool's
	unpublished []place // held, meant to stay, and not published as decided
	changing    int     // held, and in change to the form that the pool wants
	draining    drain
	excluded    drain
	unknown     []string // UUIDs that the pool excludes and that no GPU of it has
	unhealthy   []place
	repacking   repacking
}

// place is a GPU and what there is to say about it.
type place struct {
	node, device string
	pool         string // who holds it
	reason       string
	message      string
	lost         bool
}

// drain is what must leave the pool.
type drain struct {
	gpus    int
	tenants []string // namespace/name of pods, or of claims without a pod
	behind  []string // nodes whose agent has not applied the decision yet
}

// gather looks at every node once.
func gather(in Input) facts {
	f := facts{pool: in.Pool, offered: map[string]int{}}
	for _, e := range in.Pool.Spec.Excluded {
		f.unknown = append(f.unknown, e.UUID)
	}
	for _, node := range in.Nodes {
		f.addNode(node)
	}
	for _, d := range []*drain{&f.draining, &f.excluded} {
		slices.Sort(d.tenants)
		d.tenants = slices.Compact(d.tenants)
	}
	return f
}

func (f *facts) addNode(node assign.Node) {
	f.gpuNodes++
	matching := assign.SelectsNode(f.pool, node.Labels)
	if matching {
		f.matchingNodes++
	}
	decisions := assign.InForce(node)
	byGPU := assign.ByGPU(node)
	holds := false
	for i := range node.GPUNode.Status.GPUs {
		reported := &node.GPUNode.Status.GPUs[i]
		decision := decisions[reported.UUID]
		delete(decisions, reported.UUID)
		if matching {
			f.offered[reported.Product]++
			f.addSelected(node, reported, decision)
		}
		if decision != nil && decision.Pool == f.pool.Name {
			holds = true
			f.addHeld(node, reported, decision, byGPU[reported.UUID])
		} else if reported.Published.Pool == f.pool.Name && len(byGPU[reported.UUID]) > 0 {
			f.lingering++
		}
	}
	for _, d := range decisions { // those that the agent does not report
		if d.Pool == f.pool.Name {
			holds = true
			f.addMissing(node, d, byGPU[""])
		}
	}
	if holds {
		f.nodes++
	}
}

// addSelected counts a GPU of a matching node, whoever holds it.
func (f *facts) addSelected(node assign.Node, reported *v1alpha1.GPUStatus, decision *v1alpha1.GPUDecision) {
	if !assign.Selects(f.pool, node.Labels, reported.UUID, reported) {
		return
	}
	f.selected++
	if decision != nil && decision.Pool != f.pool.Name {
		f.contested = append(f.contested, place{node: node.GPUNode.Name, device: deviceName(reported), pool: decision.Pool})
	}
}

func (f *facts) addHeld(node assign.Node, reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision, allocations []assign.Allocation) {
	f.held++
	f.unknown = slices.DeleteFunc(f.unknown, func(uuid string) bool { return uuid == reported.UUID })
	f.physical += reported.MemoryBytes()
	f.use.add(node.GPUNode, reported, allocations)
	if len(allocations) > 0 {
		f.allocated++
	}
	for _, a := range allocations {
		f.usedMem += allocatedMemory(node.GPUNode, reported, a)
	}
	f.addHealth(node, reported)
	f.repacking.add(node, reported, d)
	switch {
	case f.leaves(d):
		f.addDraining(node, d, allocations)
		return
	case d.Taint == v1alpha1.TaintExcluded:
		f.excluded.add(allocations)
		return
	}
	if isPublished(reported, d) {
		f.published++
		f.offeredMem += offeredMemory(node.GPUNode, reported, d)
		f.use.Published += offeredCompute(node.GPUNode, reported, d)
		return
	}
	f.unpublished = append(f.unpublished, place{
		node: node.GPUNode.Name, device: deviceName(reported), reason: reported.Reason, message: reported.Message,
	})
}

// addMissing counts a held GPU that the agent does not report; claims on unreported GPUs may be its own.
func (f *facts) addMissing(node assign.Node, d *v1alpha1.GPUDecision, allocations []assign.Allocation) {
	f.held++
	f.unknown = slices.DeleteFunc(f.unknown, func(uuid string) bool { return uuid == d.UUID })
	if f.leaves(d) {
		f.addDraining(node, d, allocations)
		return
	}
	f.unpublished = append(f.unpublished, place{
		node: node.GPUNode.Name, device: d.UUID, reason: v1alpha1.ReasonGPUMissing, message: "the node's agent does not see the GPU",
	})
}

// leaves says whether a held GPU is to leave the pool or to change its form. A pool that is being deleted gives up all,
// also where the decision does not say so yet.
func (f *facts) leaves(d *v1alpha1.GPUDecision) bool {
	return d.Taint != "" && d.Taint != v1alpha1.TaintExcluded || !f.pool.DeletionTimestamp.IsZero()
}

func (f *facts) addDraining(node assign.Node, d *v1alpha1.GPUDecision, allocations []assign.Allocation) {
	if assign.OfRollout(d.Taint) {
		f.changing++
	}
	if d.Taint == v1alpha1.TaintLayoutChanged && f.pool.DeletionTimestamp.IsZero() {
		return // what can stays: the rollout says who has to go
	}
	f.draining.add(allocations)
	name := node.GPUNode.Name
	if node.GPUNode.Status.ObservedGeneration < node.GPUNode.Generation && !slices.Contains(f.draining.behind, name) {
		f.draining.behind = append(f.draining.behind, name)
	}
}

// add counts a GPU and who holds it.
func (d *drain) add(allocations []assign.Allocation) {
	d.gpus++
	for _, a := range allocations {
		d.tenants = append(d.tenants, tenants(a)...)
	}
}

// addHealth notes a GPU that is not well.
func (f *facts) addHealth(node assign.Node, reported *v1alpha1.GPUStatus) {
	health := reported.Health
	if health.State == "" || health.State == v1alpha1.HealthHealthy {
		return
	}
	f.unhealthy = append(f.unhealthy, place{
		node: node.GPUNode.Name, device: deviceName(reported), reason: health.Reason, message: health.Message, lost: health.State == v1alpha1.HealthLost,
	})
}

// tenants names who holds an allocation: the pods it is reserved for, else the claim.
func tenants(a assign.Allocation) []string {
	if len(a.Pods) == 0 {
		return []string{"claim " + a.Claim.String()}
	}
	names := make([]string, 0, len(a.Pods))
	for _, pod := range a.Pods {
		names = append(names, a.Claim.Namespace+"/"+pod)
	}
	return names
}

// isPublished says whether a GPU is offered as decided. The published form alone does not tell: an agent that sees trouble
// keeps the form and taints it with a reason of its own.
func isPublished(reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision) bool {
	// While slices are being rewritten, for another order or ratio, the devices are there; with any other reason the agent
	// keeps them from the scheduler.
	offered := reported.Reason == v1alpha1.ReasonPublished || reported.Reason == v1alpha1.ReasonPublishing
	p := reported.Published
	return offered && p.Pool == d.Pool && p.Partitioning == d.Partitioning && p.Sharing == d.Sharing && p.Taint == "" &&
		(p.Strategy == d.Strategy || p.Strategy == "" && d.Strategy == v1alpha1.MIGDynamic)
}

// offeredMemory is what a GPU, or the instances of its layout, publish.
func offeredMemory(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision) int64 {
	if assign.StrategyOf(*d) != v1alpha1.MIGStatic {
		return devices.PublishedMemory(reported.MemoryBytes(), d.MemoryPercent)
	}
	var sum int64
	for _, instance := range d.Instances {
		for _, profile := range node.Status.Profiles {
			if profile.Product == reported.Product && profile.Name == instance.Profile {
				sum += devices.PublishedMemory(profile.MemoryBytes(), d.MemoryPercent)
			}
		}
	}
	return sum
}

// allocatedMemory is what an allocation holds: its amount, the profile's memory, or the whole GPU's.
func allocatedMemory(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, a assign.Allocation) int64 {
	if a.Memory != nil {
		return a.Memory.Value()
	}
	if profile := profileOf(node, reported, a); profile != nil {
		return profile.MemoryBytes()
	}
	if a.Device == deviceName(reported) {
		return reported.MemoryBytes()
	}
	return 0
}

// profileOf is the profile of the MIG instance that an allocation is of; nil for a whole GPU.
func profileOf(node *v1alpha1.GPUNode, reported *v1alpha1.GPUStatus, a assign.Allocation) *v1alpha1.MIGProfile {
	minor := int(ptr.Deref(reported.Minor, 0))
	for i := range node.Status.Profiles {
		profile := &node.Status.Profiles[i]
		anyStart := strings.TrimSuffix(devices.PlacementName(minor, gpu.Placement{Profile: profile.Name}), "0")
		if profile.Product == reported.Product && strings.HasPrefix(a.Device, anyStart) {
			return profile
		}
	}
	return nil
}

func deviceName(reported *v1alpha1.GPUStatus) string {
	return devices.Name(int(ptr.Deref(reported.Minor, 0)))
}
