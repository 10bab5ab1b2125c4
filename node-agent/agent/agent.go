// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent as a whole: it keeps what a node offers to the scheduler, and what it reports, in line
// with what the manager decided and what the hardware is. It is level-triggered: one goroutine looks at everything and
// brings it in line, again and again; whatever happens only makes it look sooner.
package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/divide"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
	"github.com/sluice-gpu/sluice/node-agent/publish"
	"github.com/sluice-gpu/sluice/node-agent/violations"
)

// The rights of the agent. What it may write of them is its own node's, which admission policies see to.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get,roleName=sluice-node-agent
// +kubebuilder:rbac:groups="",resources=pods,verbs=list,roleName=sluice-node-agent
// +kubebuilder:rbac:groups=sluice.dev,resources=gpunodes,verbs=create;get;list;watch,roleName=sluice-node-agent
// +kubebuilder:rbac:groups=sluice.dev,resources=gpunodes/status,verbs=get;update,roleName=sluice-node-agent
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceslices,verbs=create;delete;get;list;patch;update;watch,roleName=sluice-node-agent
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get,roleName=sluice-node-agent

// Looker looks at the hardware.
type Looker interface {
	Look(ctx context.Context) (gpu.Node, error)
}

// Cluster is the API server.
type Cluster interface {
	// GPUNode is the node's; nil where there is none. Fresh asks the API server itself, past what is watched.
	GPUNode(ctx context.Context, fresh bool) (*v1alpha1.GPUNode, error)
	// CreateGPUNode makes the node's GPUNode, which belongs to the Node.
	CreateGPUNode(ctx context.Context, owner *corev1.Node) error
	UpdateStatus(ctx context.Context, n *v1alpha1.GPUNode) error
	// Node is this node.
	Node(ctx context.Context) (*corev1.Node, error)
	// Slices are the node's ResourceSlices, of every driver.
	Slices(ctx context.Context, fresh bool) ([]resourceapi.ResourceSlice, error)
}

// Publisher hands ResourceSlices to those who keep them in the API server.
type Publisher interface {
	Publish(ctx context.Context, slices []resourceslice.Slice) error
}

// Records is the checkpoint.
type Records interface {
	Lock() (unlock func(), err error)
	Claims() (checkpoint.Claims, error)
	Published() (checkpoint.Published, error)
	SavePublished(p checkpoint.Published) error
	Made() (checkpoint.Made, error)
}

// Preparer is what the loop needs of the claims.
type Preparer interface {
	Maintain(ctx context.Context) error
	Gone(ctx context.Context) ([]string, error)
	Unprepare(ctx context.Context, uid string) error
}

// Divider keeps GPUs divided as their static layouts say.
type Divider interface {
	Divide(ctx context.Context, look gpu.Node) (divide.Result, error)
}

// Holders says who holds a GPU.
type Holders interface {
	On(ctx context.Context, gpuUUID string, recorded checkpoint.Claims) ([]holders.Process, error)
}

// Library is what holds limits inside processes.
type Library interface {
	// Status is the version that new shares get, "" where there is none for them, and why that does not work.
	Status() (version string, err error)
}

// Arbiter hands out the time of the GPUs.
type Arbiter interface {
	// Refresh has it look at the shares again.
	Refresh()
}

// MPS says what was seen of the devices that MPS holds.
type MPS interface {
	Report() watch.Report
	// Program is an error where the node cannot share by MPS.
	Program() error
}

// Violations says which shares are not kept to.
type Violations interface {
	Report() violations.Report
}

// Intervals are the agent's times.
type Intervals struct {
	// Resync is the longest time between two passes, Pause the shortest.
	Resync, Pause time.Duration
	// DriverRetry is the time between passes while NVML does not answer; after DriverGrace without an answer the
	// devices are tainted.
	DriverRetry, DriverGrace time.Duration
	// Reorder is the shortest time between two changes of the GPUs' order.
	Reorder time.Duration
	// Republish is the time after which slices that are not as wanted are asked for again.
	Republish time.Duration
	// Sweep is the time between two searches for claims that are gone from the API; SweepAgain that until a claim found
	// gone is looked for a second time, and then released.
	Sweep, SweepAgain time.Duration
	// Distrust is how long after the API server was away what is watched is not relied on: watches come back late.
	Distrust time.Duration
	// Undecided is how long a new GPUNode without a spec is taken to be one that the manager has not seen yet.
	Undecided time.Duration
}

// DefaultIntervals are those of a node in production, with the given resync.
func DefaultIntervals(resync time.Duration) Intervals {
	return Intervals{
		Resync: resync, Pause: time.Second,
		DriverRetry: 3 * time.Second, DriverGrace: 30 * time.Second,
		Reorder: 30 * time.Second, Republish: 5 * time.Second,
		Sweep: 10 * time.Minute, SweepAgain: time.Minute,
		Distrust: 2 * time.Minute, Undecided: time.Minute,
	}
}

// Agent is the loop.
type Agent struct {
	Hardware  Looker
	Cluster   Cluster
	Publisher Publisher
	Records   Records
	Preparer  Preparer
	Divider   Divider
	Holders   Holders
	// TimeSlicer sets what NVML cannot.
	TimeSlicer TimeSlicer
	Library    Library
	Arbiter    Arbiter
	MPS        MPS
	Violations Violations
	// MemoryLimits are those that the driver holds.
	MemoryLimits MemoryLimits
	Health       Health
	// HealthReports are kubelet's, Teller is for pods.
	HealthReports HealthReports
	Teller        Teller
	Metrics       *Metrics
	Clock         clock.Clock
	Intervals     Intervals
	Log           logr.Logger

	triggerOnce sync.Once
	triggers    chan struct{}

	// mu guards what other goroutines set.
	mu           sync.Mutex
	publishError string
	republish    bool
	repaired     map[string]string

	memory memory
}

// memory is what the loop remembers from one pass to the next. Losing it costs time, never correctness.
type memory struct {
	goodLook     *gpu.Node
	failingSince time.Time
	node         *corev1.Node
	away         time.Time
	reordered    time.Time
	asked        []resourceslice.Slice
	askedAt      time.Time
	sweepAt      time.Time
	suspects     map[string]time.Time
	told         map[string]v1alpha1.HealthState
	seen         map[string]checkpoint.Facts
	lastTrouble  string
	troubles     map[string]publish.Trouble
	foreign      map[string]foreign
	timeSlices   map[string]v1alpha1.TimeSlice
}

// Trigger makes the next pass come soon. It never blocks.
func (a *Agent) Trigger() {
	select {
	case a.wake() <- struct{}{}:
	default:
	}
}

func (a *Agent) wake() chan struct{} {
	a.triggerOnce.Do(func() { a.triggers = make(chan struct{}, 1) })
	return a.triggers
}

// ErrNodeReplaced says that the Node was deleted and made anew. Whatever is published belongs to the old one and is
// deleted with it, so the agent must start over.
var ErrNodeReplaced = errors.New("the Node was made anew")

// Run passes until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	for {
		next, err := a.pass(ctx)
		if errors.Is(err, ErrNodeReplaced) || errors.Is(err, ErrLeft) {
			return err
		}
		a.note(ctx, err)
		if !a.wait(ctx, next) {
			return nil
		}
	}
}

// note logs the trouble of a pass once, and that it is over.
func (a *Agent) note(ctx context.Context, err error) {
	a.Metrics.passed(err)
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	switch text {
	case a.memory.lastTrouble:
	case "":
		a.Log.Info("All is well again")
	default:
		a.Log.Error(err, "Not everything could be brought in line; it is tried again")
	}
	a.memory.lastTrouble = text
}

// wait sleeps for the pause, then until something triggers or the time is over; false where the context ends.
func (a *Agent) wait(ctx context.Context, next time.Duration) bool {
	pause := a.Clock.NewTimer(a.Intervals.Pause)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-pause.C():
	}
	if next <= a.Intervals.Pause {
		return true
	}
	rest := a.Clock.NewTimer(next - a.Intervals.Pause)
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-a.wake():
	case <-rest.C():
	}
	return true
}

// pass looks at everything once and brings it in line. It returns when the next pass is due at the latest.
func (a *Agent) pass(ctx context.Context) (time.Duration, error) {
	next := a.Intervals.Resync
	world, err := a.gather(ctx)
	if errors.Is(err, errCreated) {
		return next, nil
	}
	if err != nil {
		return a.Intervals.DriverRetry, err
	}
	if world.failed != "" {
		next = min(next, a.Intervals.DriverRetry)
	}
	if world.fresh {
		next = min(next, a.Intervals.Republish)
	}
	world.probes = a.probes(ctx, world)
	failed := []error{world.away}
	plan, err := a.record(world)
	if err != nil {
		return a.Intervals.DriverRetry, err
	}
	plan, err = a.divide(ctx, &world, plan)
	failed = append(failed, err)
	next = a.nextFor(world, plan, next)
	if plan.reorderIn > 0 {
		next = min(next, plan.reorderIn)
	}
	settled, err := a.publish(ctx, world, plan)
	failed = append(failed, err)
	if !settled {
		next = min(next, a.Intervals.Republish)
	}
	a.tell(ctx, plan)
	failed = append(failed, a.setTimeSlices(ctx, world, plan), a.maintain(ctx, world, plan), a.sweep(ctx), a.report(ctx, world, plan, settled), a.tellFallbacks(ctx, plan))
	if err := errors.Join(failed...); err != nil {
		return min(next, a.Intervals.Republish), fmt.Errorf("bringing the node in line: %w", err)
	}
	if world.gpuNode.Leaving() && settled {
		return next, a.leave(plan)
	}
	return next, nil
}
