// SPDX-License-Identifier: Apache-2.0

// Package claims prepares and unprepares ResourceClaims on one node: MIG instance, share, CDI spec and the record of
// them. Each step is recorded before it is taken or can be found again afterwards, so that a kill at any point leaves
// nothing that the next call, or the next start, does not finish or take back.
package claims

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/library"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// Hardware is the NVML door.
type Hardware interface {
	Look(ctx context.Context) (gpu.Node, error)
	CreateGPUInstance(ctx context.Context, gpuUUID string, p gpu.Placement) (giID int, err error)
	CreateComputeInstance(ctx context.Context, gpuUUID string, giID int) (ciID int, migUUID string, err error)
	DestroyInstance(ctx context.Context, gpuUUID string, giID int) error
	SetMIGMode(ctx context.Context, gpuUUID string, on bool) error
	Holders(ctx context.Context, gpuUUID string) ([]nvml.Holder, error)
}

// Specs is the CDI door.
type Specs interface {
	Write(claimUID string, grants []Grant) (ids []string, err error)
	Remove(claimUID string) error
	List() ([]string, error)
}

// Grant is one device of a claim as the container runtime is to see it.
type Grant struct {
	// Name is unique within the claim: the result's index.
	Name string
	// UUID is the GPU's or the MIG device's.
	UUID string
	// Mounts are the files of the node that it is given, and Env variables.
	Mounts []Mount
	Env    []string
	// Ask is true where the agent must be asked before a container with the device starts.
	Ask bool
}

// Mount is a file of the node at a path of the container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly, Executable    bool
}

// Shares is the door to the share files.
type Shares interface {
	Write(share limits.Share) (dir string, err error)
	SetPolicy(claimUID string, index int, policy uint32) error
	Remove(claimUID string) error
	List() ([]string, error)
}

// Library is the door to the placed versions of the library that holds limits inside processes.
type Library interface {
	// Place makes sure that a version is there; "" asks for that of new shares, which may be none.
	Place(version string) (library.Placed, error)
	Holds(version string) bool
	// Sweep removes the versions that nobody needs but those given.
	Sweep(inUse []string) error
}

// Contexts knows what a CUDA context costs.
type Contexts interface {
	// Context is what each context of the result's share is charged.
	Context(r checkpoint.Result) uint64
}

// API reads claims and the pods of this node.
type API interface {
	// Get returns nil without an error where there is no such claim.
	Get(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
	// User names a pod of this node that uses the claim and has not ended; "" where there is none.
	User(ctx context.Context, namespace, claim string) (string, error)
}

// Records is the checkpoint.
type Records interface {
	Lock() (unlock func(), err error)
	Claims() (checkpoint.Claims, error)
	SaveClaims(c checkpoint.Claims) error
	Published() (checkpoint.Published, error)
}

// Preparer prepares and unprepares claims. All of its methods take the node's lock, so calls wait for each other, in this
// process and in another agent of the node.
type Preparer struct {
	NodeName string
	// BootID tells this boot of the node from every other.
	BootID   string
	Records  Records
	Hardware Hardware
	Specs    Specs
	Shares   Shares
	Library  Library
	Contexts Contexts
	MPS      MPS
	Limits   MemoryLimits
	API      API
	Clock    clock.PassiveClock
	Log      logr.Logger
}

// Prepare makes what the claim was granted and returns its results of this driver with their CDI device names. Calling
// it again gives the same answer.
func (p *Preparer) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]checkpoint.Result, error) {
	unlock, err := p.Records.Lock()
	if err != nil {
		return nil, fmt.Errorf("locking the checkpoint: %w", err)
	}
	defer unlock()
	// kubelet has given up on a call that waited too long, and asks again: carrying it out now would only be in the way
	// of those that still have time.
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("waiting for other claims of the node: %w", err)
	}
	recorded, published, err := p.read()
	if err != nil {
		return nil, err
	}
	old, known := recorded.Claims[string(claim.UID)]
	if known && old.State == checkpoint.Prepared && sameAllocation(old, claim) {
		return old.Results, nil
	}
	results, err := resolve(claim, p.NodeName, &published)
	if err != nil || len(results) == 0 {
		return nil, err
	}
	wasLost := old.State == checkpoint.Lost || old.WasLost
	if known {
		if err := p.again(ctx, &recorded, old, results); err != nil {
			return nil, err
		}
	}
	if err := p.admit(ctx, string(claim.UID), results, recorded, &published); err != nil {
		return nil, err
	}
	return p.carryOut(ctx, &recorded, checkpoint.Claim{
		UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name,
		State: checkpoint.Preparing, WasLost: wasLost, Results: results, Pods: podsOf(claim),
	}, &published)
}

// again clears the way for a claim that has been here before: what it was prepared on must still be what its devices'
// names mean, and what an attempt left behind is taken back.
func (p *Preparer) again(
	ctx context.Context, recorded *checkpoint.Claims, old checkpoint.Claim, results []checkpoint.Result,
) error {
	if old.State == checkpoint.Lost || old.WasLost {
		if err := sameGPUs(old, results); err != nil {
			return err
		}
	}
	if old.State == checkpoint.Lost {
		return nil
	}
	if err := p.undoAttempt(ctx, recorded, old); err != nil {
		return fmt.Errorf("taking back what an earlier attempt left: %w", err)
	}
	return nil
}

// read reads both records.
func (p *Preparer) read() (checkpoint.Claims, checkpoint.Published, error) {
	recorded, err := p.Records.Claims()
	if err != nil {
		return recorded, checkpoint.Published{}, fmt.Errorf("reading the prepared claims: %w", err)
	}
	published, err := p.Records.Published()
	if err != nil {
		return recorded, published, fmt.Errorf("reading the published devices: %w", err)
	}
	return recorded, published, nil
}

// Unprepare takes back everything that Prepare made for the claim. A claim that is not known is no error.
func (p *Preparer) Unprepare(ctx context.Context, uid string) error {
	unlock, err := p.Records.Lock()
	if err != nil {
		return fmt.Errorf("locking the checkpoint: %w", err)
	}
	defer unlock()
	recorded, published, err := p.read()
	if err != nil {
		return err
	}
	claim, known := recorded.Claims[uid]
	if !known {
		return nil
	}
	p.keep(&recorded, claim, published)
	return p.undo(ctx, &recorded, claim)
}

// podsOf are the pods that a claim is reserved for.
func podsOf(claim *resourceapi.ResourceClaim) []checkpoint.Pod {
	var pods []checkpoint.Pod
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			pods = append(pods, checkpoint.Pod{Name: consumer.Name, UID: string(consumer.UID)})
		}
	}
	return pods
}

// admit refuses a claim whose devices another claim still has.
func (p *Preparer) admit(
	ctx context.Context, uid string, results []checkpoint.Result, recorded checkpoint.Claims, published *checkpoint.Published,
) error {
	v := judge(uid, results, recorded, published)
	if v.refusal != nil {
		return v.refusal
	}
	for _, c := range v.crowded {
		for _, holder := range c.holders {
			alive, err := p.holds(ctx, holder, c.device)
			if err != nil {
				return fmt.Errorf("finding out who holds %s: %w", c.device, err)
			}
			if !alive {
				return refuse("%s is full and still held by %s, which is gone from the API; it is tried again",
					c.device, describe(holder))
			}
		}
	}
	return nil
}

// holds is true where the claim still exists and is allocated the device.
func (p *Preparer) holds(ctx context.Context, holder checkpoint.Claim, device string) (bool, error) {
	claim, err := p.API.Get(ctx, holder.Namespace, holder.Name)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", describe(holder), err)
	}
	if claim == nil || string(claim.UID) != holder.UID || claim.Status.Allocation == nil {
		return false, nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Pool == p.NodeName && r.Device == device {
			return true, nil
		}
	}
	return false, nil
}

// sameGPUs refuses a claim whose device names mean other GPUs than those it was prepared on.
func sameGPUs(old checkpoint.Claim, results []checkpoint.Result) error {
	before := map[int]checkpoint.Result{}
	for _, r := range old.Results {
		before[r.Index] = r
	}
	for _, r := range results {
		if b, ok := before[r.Index]; ok && b.Device == r.Device && b.GPU != r.GPU {
			return refuse("it was given GPU %s as %s, but that name means GPU %s now", b.GPU, r.Device, r.GPU)
		}
	}
	return nil
}

// errNotDone marks a failure after which everything has been taken back.
var errNotDone = errors.New("preparing the claim failed")
