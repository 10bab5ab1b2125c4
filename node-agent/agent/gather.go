// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// world is one look at everything outside.
type world struct {
	now  time.Time
	look gpu.Node
	// failed and message say why NVML does not answer; lost is true once that has lasted.
	failed, message string
	lost            bool
	// lookErr is what the look at the hardware ended with.
	lookErr error
	gpuNode *v1alpha1.GPUNode
	// probes say of GPUs, by UUID, what became of trying the driver's memory limits.
	probes    map[string]memlimits.Probe
	undecided bool
	foreign   string
	ours      []resourceapi.ResourceSlice
	// away is why the API server could not be asked; fresh is true while what is watched cannot be relied on.
	away  error
	fresh bool
}

func (a *Agent) gather(ctx context.Context) (world, error) {
	w := world{now: a.Clock.Now()}
	a.look(ctx, &w)
	node, err := a.node(ctx, &w)
	if err != nil {
		return w, err
	}
	if w.gpuNode, err = a.Cluster.GPUNode(ctx, w.fresh); err != nil {
		return w, fmt.Errorf("reading the GPUNode: %w", err)
	}
	if w.gpuNode == nil {
		if err := a.Cluster.CreateGPUNode(ctx, node); err != nil {
			return w, fmt.Errorf("creating the GPUNode: %w", err)
		}
		return w, errCreated
	}
	w.undecided = w.gpuNode.Spec == nil && w.now.Sub(w.gpuNode.CreationTimestamp.Time) < a.Intervals.Undecided
	slices, err := a.Cluster.Slices(ctx, w.fresh)
	if err != nil {
		return w, fmt.Errorf("reading the node's ResourceSlices: %w", err)
	}
	for _, s := range slices {
		if s.Spec.Driver == v1alpha1.DriverName {
			w.ours = append(w.ours, s)
		}
	}
	var uuids []string
	for _, g := range w.look.GPUs {
		uuids = append(uuids, g.UUID)
	}
	w.foreign = publish.Foreign(node.Status.Allocatable, slices, uuids)
	return w, nil
}

// node reads the Node, which is not watched, and so tells whether the API server is there. While it is away the agent
// goes on with what it knows; once it is back the rest is asked for too, since watches return up to a minute later.
func (a *Agent) node(ctx context.Context, w *world) (*corev1.Node, error) {
	node, err := a.Cluster.Node(ctx)
	if err == nil {
		if a.memory.node != nil && a.memory.node.UID != node.UID {
			return nil, ErrNodeReplaced
		}
		a.memory.node = node
		w.fresh = !a.memory.away.IsZero() && w.now.Sub(a.memory.away) < a.Intervals.Distrust
		return node, nil
	}
	err = fmt.Errorf("reading the Node: %w", err)
	if a.memory.node == nil || apierrors.IsNotFound(err) {
		return nil, err
	}
	w.away = err
	a.memory.away = w.now
	return a.memory.node, nil
}

// look looks at the hardware. Within the grace time after the last good look, that one stands in for a failing one: a
// hiccup of the driver must not rewrite the node's slices.
func (a *Agent) look(ctx context.Context, w *world) {
	look, err := a.Hardware.Look(ctx)
	w.lookErr = err
	w.failed, w.message = judgeLook(err)
	if w.failed == "" {
		w.look = look
		a.memory.goodLook, a.memory.failingSince = &look, time.Time{}
		return
	}
	if a.memory.failingSince.IsZero() {
		a.memory.failingSince = w.now
	}
	if a.memory.goodLook != nil {
		w.look = *a.memory.goodLook
	}
	w.lost = a.memory.goodLook == nil || w.now.Sub(a.memory.failingSince) >= a.Intervals.DriverGrace
}
