// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// InForce are the decisions in force on a node, by UUID.
//
// A GPUNode can lose its decisions, when it is deleted past its finalizer or comes back from a backup, while the GPUs are
// published and used as ever. What is published is then the decision in force: for every GPU where the manager has not
// decided anything on the node yet, and for a GPU that somebody holds in any case. It is not for a GPU that nobody holds
// where the manager has decided: that one was just released, and the agent has not withdrawn it yet.
func InForce(node Node) map[string]*v1alpha1.GPUDecision {
	inForce := make(map[string]*v1alpha1.GPUDecision, len(node.GPUNode.Decisions()))
	for i, d := range node.GPUNode.Decisions() {
		inForce[d.UUID] = &node.GPUNode.Decisions()[i]
	}
	undecided := node.GPUNode.Spec == nil
	held := Held(node)
	for i := range node.GPUNode.Status.GPUs {
		gpu := &node.GPUNode.Status.GPUs[i]
		published := gpu.Published != (v1alpha1.PublishedForm{})
		if inForce[gpu.UUID] == nil && published && (undecided || held[gpu.UUID]) {
			inForce[gpu.UUID] = adopted(gpu)
		}
	}
	return inForce
}

// adopted is the decision that a published form shows. The form does not tell the ratios: it promises no more than
// there is, until the pool's own decision takes its place. The instances of a layout are those that there are.
func adopted(gpu *v1alpha1.GPUStatus) *v1alpha1.GPUDecision {
	d := &v1alpha1.GPUDecision{
		UUID:           gpu.UUID,
		Pool:           gpu.Published.Pool,
		Partitioning:   gpu.Published.Partitioning,
		Strategy:       gpu.Published.Strategy,
		Sharing:        gpu.Published.Sharing,
		MemoryPercent:  noOvercommit,
		ComputePercent: noOvercommit,
	}
	if d.Strategy == v1alpha1.MIGStatic {
		for _, i := range gpu.Instances {
			d.Instances = append(d.Instances, v1alpha1.MIGPlacement{Start: i.Start, Profile: i.Profile})
		}
	}
	return d
}
