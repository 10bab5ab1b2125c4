// SPDX-License-Identifier: Apache-2.0

// Package rollout decides in which order the GPUs of a pool get a new layout or another form: which are next, which wait,
// and for whom.
//
// maxUnavailable bounds how many GPUs are out of use for their change at once. A GPU is out of use from the taint with
// which its change begins until the taint is gone, or while its agent fails to make it so, so that a change which fails
// stops at that many GPUs. GPUs that are lost or excluded are not counted: nobody knows when they come back. A change
// that takes nothing away, such as that of a GPU which is new, does not wait at all.
package rollout

import (
	"time"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
)

// GPU is what is known of one GPU of the pool.
type GPU struct {
	// Node, UUID and Minor say which one it is.
	Node  string
	UUID  string
	Minor int32

	// Form is the wanted form in a few words.
	Form string
	// Reform is true where the wanted form is another than that of the decision in force: whoever has any of the GPU has
	// to go first.
	Reform bool
	// Whole is true where the wanted form has no layout: the GPU stays whole, or its instances come and go with claims.
	Whole bool
	// Held is true where somebody has the GPU, or any of it.
	Held bool
	// Formed is true where the agent offers the GPU in the form of the decision in force.
	Formed bool

	// Board is how it can be divided.
	Board layout.Board
	// Wanted is the layout that the pool wants for it now.
	Wanted []layout.Count
	// Problem says why there is no such layout; "" where there is one.
	Problem string
	// NotBefore is when the layout may come: the GPU drains for it, and keeps what it has until then. Zero: at once.
	NotBefore time.Time

	// Decided are the placements of the decision in force.
	Decided []gpu.Placement
	// Instances are what there is. One that is allocated is in use, whether or not it is prepared.
	Instances []layout.Instance
	// Holders say who has the instances that are in use.
	Holders []Holder
	// Offered is true while devices of the GPU are published, or have been until a moment ago.
	Offered bool

	// Draining is when the change began, with a taint; zero: there is no taint.
	Draining time.Time
	// Settled is true once the node's agent has published the taint.
	Settled bool

	// Away is a clause that says why the GPU cannot be changed at all now; "" where it can.
	Away string
	// Failure is what its agent says went wrong with the decided layout; "" where nothing did.
	Failure string
}

// Holder is somebody who has an instance, or the GPU.
type Holder struct {
	// Placement is the instance; the zero one: the whole GPU, or a share of it.
	gpu.Placement
	// Name is a pod's namespace and name, or what else people know the holder by.
	Name string
	// Evictable is true for a pod.
	Evictable bool
	// UID is a pod's.
	UID string
}

// Policy is what the pool says about changes.
type Policy struct {
	// MaxUnavailable is how many GPUs may be out of use at once.
	MaxUnavailable int
	// Evict is whether tenants that do not finish by themselves are evicted.
	Evict bool
	// Grace is how long they are given to finish.
	Grace time.Duration
}

// Step is what is to be done with a GPU, or is being done.
type Step string

const (
	// StepDone: the GPU is as it is to be.
	StepDone Step = "Done"
	// StepRefused: there is no layout for the GPU, or the board cannot hold it; the GPU stays as it is.
	StepRefused Step = "Refused"
	// StepAway: the GPU is lost or excluded.
	StepAway Step = "Away"
	// StepWait: as many GPUs as may be are out of use already.
	StepWait Step = "Wait"
	// StepBegin: taint the GPU.
	StepBegin Step = "Begin"
	// StepDrain: the GPU waits for those who hold instances that have to go.
	StepDrain Step = "Drain"
	// StepEvict: evict the pods that hold them; what else holds them is waited for.
	StepEvict Step = "Evict"
	// StepSettle: nobody holds them any more, but the agent has not taken the GPU from the scheduler yet.
	StepSettle Step = "Settle"
	// StepReady: the GPU could be divided, and waits for the time of its layout.
	StepReady Step = "Ready"
	// StepApply: decide for the target.
	StepApply Step = "Apply"
	// StepApplying: the agent is at it.
	StepApplying Step = "Applying"
	// StepRelease: take the taint away; the change is over, or is not wanted any more.
	StepRelease Step = "Release"
)

// Verdict is what is to be done with one GPU.
type Verdict struct {
	Node, UUID string
	Step       Step
	// Target are the placements to decide for; with StepApply only.
	Target []gpu.Placement
	// Evict are whom to evict; with StepEvict only.
	Evict []Holder
	// Message is a sentence for people; "" where nothing is to be said.
	Message string
	// Again is when to ask again although nothing has changed; zero: never.
	Again time.Time
}

// Result is what is to be done with the GPUs of the pool.
type Result struct {
	// Verdicts are in the order of the GPUs.
	Verdicts []Verdict
	// Done, Changing, Waiting, Refused and Away count them.
	Done, Changing, Waiting, Refused, Away int
	// Message is one line for people about all of them.
	Message string
}

// Decide says what is to be done with each GPU now. What has begun goes on; then come changes that take nothing away;
// then, within the bound, first those that disturb the fewest tenants.
func Decide(gpus []GPU, policy Policy, now time.Time) Result {
	changes := make([]change, len(gpus))
	outOfUse := 0
	j := judge{policy: policy, now: now, refusals: map[string]string{}}
	for i, g := range gpus {
		changes[i] = j.judge(g)
		if changes[i].outOfUse {
			outOfUse++
		}
	}
	begin(changes, policy.MaxUnavailable, outOfUse)
	return summarize(changes)
}
