// SPDX-License-Identifier: Apache-2.0

// Package publish decides in which form each GPU of a node is offered to the scheduler. It is pure: what is seen, what
// the manager decided and what is prepared go in, and one outcome a GPU comes out, with the reason.
//
// One rule stands above every decision: what a claim has been prepared on is never reshaped or withdrawn, because the
// scheduler would take its capacity for free. It keeps the form it had, tainted.
package publish

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// Input is everything that a plan depends on.
type Input struct {
	// Look is what NVML shows. It counts only where Failed is "".
	Look gpu.Node
	// Failed is the reason for which NVML does not answer, ReasonNVMLNotFound or ReasonNVMLFailed.
	Failed string
	// Decisions are the manager's. Undecided is true where there is no word from it at all, which is not the same as a
	// decision that no pool holds any GPU.
	Decisions []v1alpha1.GPUDecision
	Undecided bool
	// Record is what has been published so far.
	Record checkpoint.Published
	// InUse counts the claims that hold something of each GPU, by UUID.
	InUse map[string]int
	// Held are the placements at which claims have MIG instances, by UUID.
	Held map[string][]gpu.Placement
	// Troubles are what stood against dividing GPUs when it was last tried, by UUID.
	Troubles map[string]Trouble
	// Health says how each GPU is, by UUID.
	Health map[string]health.Verdict
	// Remembered are the GPUs that were seen before, by UUID: one that is sick is told of though it was never offered.
	Remembered map[string]checkpoint.Facts
	// Probes say of GPUs, by UUID, what became of trying the driver's memory limits.
	Probes map[string]memlimits.Probe
	// Foreign names who else hands out GPUs of this node; "" for nobody.
	Foreign string
}

// Outcome is what is to become of one GPU.
type Outcome struct {
	// Facts are the GPU as seen now, or as last seen.
	Facts checkpoint.Facts
	// Seen is the GPU as NVML shows it; nil where it does not.
	Seen *gpu.GPU
	// Minor is the number in device names.
	Minor int
	// Form is what to publish, with its taint; nil where the GPU is not offered.
	Form *v1alpha1.GPUDecision
	// Instances are the MIG instances to publish where the form is static.
	Instances []checkpoint.Standing
	// Decided is true where a pool holds the GPU, and AsDecided where the form is exactly what the manager decided.
	Decided, AsDecided bool
	// Health says how the GPU is.
	Health health.Verdict
	// Limits says what holds the memory limits of its shares; the zero value where nobody knows, or it is not offered.
	Limits v1alpha1.GPUMemoryLimits
	// Reason is one of the API's, Message says in a sentence what stands in the way; "" where nothing does.
	Reason, Message string
}

// Plan decides for every GPU that is seen, published or decided, ordered by UUID. A GPU that is decided but was never
// seen has an Outcome with the UUID alone.
func Plan(in Input) []Outcome {
	var outcomes []Outcome
	for _, uuid := range in.uuids() {
		outcomes = append(outcomes, in.decide(uuid))
	}
	number(outcomes, in)
	return outcomes
}

func (in Input) uuids() []string {
	var uuids []string
	if in.Failed == "" {
		for _, g := range in.Look.GPUs {
			uuids = append(uuids, g.UUID)
		}
	}
	for _, g := range in.Record.GPUs {
		uuids = append(uuids, g.Facts.UUID)
	}
	for _, d := range in.Decisions {
		uuids = append(uuids, d.UUID)
	}
	for uuid := range in.Remembered {
		if v := in.Health[uuid]; v.Sick() && !v.Forget {
			uuids = append(uuids, uuid)
		}
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
}

// situation is what is known of one GPU.
type situation struct {
	in      Input
	uuid    string
	seen    *gpu.GPU
	before  *checkpoint.PublishedGPU
	decided *v1alpha1.GPUDecision
	used    bool
}

// check looks at one thing that can stand against publishing a GPU as decided; nil where it does not.
type check func(s situation) *Outcome

// decide asks the checks in order; the first that has something to say has the word.
func (in Input) decide(uuid string) Outcome {
	s := situation{in: in, uuid: uuid, before: in.Record.ByUUID(uuid), used: in.InUse[uuid] > 0}
	if in.Failed == "" {
		s.seen = in.Look.ByUUID(uuid)
	}
	if i := slices.IndexFunc(in.Decisions, func(d v1alpha1.GPUDecision) bool { return d.UUID == uuid }); i >= 0 {
		s.decided = &in.Decisions[i]
	}
	outcome := Outcome{Reason: v1alpha1.ReasonPublished, AsDecided: true}
	if s.decided != nil {
		form := *s.decided
		outcome.Form = &form
	}
	for _, c := range []check{driverAnswers, isThere, belongsToUs, isDecided, keepsShape, canBeDivided, canBeWhole, isHeld, isOurs} {
		if o := c(s); o != nil {
			outcome = *o
			break
		}
	}
	s.divide(&outcome)
	outcome.Health = in.Health[uuid]
	if outcome.Health.Sick() && outcome.Form != nil && outcome.AsDecided {
		outcome.AsDecided = false
		outcome.Reason, outcome.Message = v1alpha1.ReasonUnhealthy, outcome.Health.Message
	}
	outcome.Decided = s.decided != nil
	outcome.Seen = s.seen
	outcome.Facts = s.facts()
	if outcome.Form != nil {
		outcome.Limits = s.limits(*outcome.Form)
	} else if s.decided != nil {
		outcome.Limits = s.limits(*s.decided)
	}
	return outcome
}

func (s situation) facts() checkpoint.Facts {
	switch {
	case s.seen != nil:
		return checkpoint.FactsOf(*s.seen, s.in.Look.DriverVersion)
	case s.before != nil:
		return s.before.Facts
	}
	if facts, remembered := s.in.Remembered[s.uuid]; remembered && s.in.Health[s.uuid].Sick() {
		return facts
	}
	return checkpoint.Facts{UUID: s.uuid}
}

// limits says what holds the memory limits of shares in a form.
func (s situation) limits(form v1alpha1.GPUDecision) v1alpha1.GPUMemoryLimits {
	return memlimits.Decide(form, s.facts().DriverVersion, s.in.Probes[s.uuid])
}

// asBefore goes on publishing what was published, tainted, so that nothing new comes.
func (s situation) asBefore(taint, reason, message string) *Outcome {
	form := s.before.Form
	// A taint that the manager has asked for is the one it waits to see.
	form.Taint = cmp.Or(decidedTaint(s.decided), v1alpha1.TaintReason(taint))
	return &Outcome{Form: &form, Reason: reason, Message: message}
}

// inUseAsBefore goes on publishing a GPU that is in use, and withdraws one that is not.
func (s situation) inUseAsBefore(taint, reason, message string) *Outcome {
	if s.used && s.before != nil {
		return s.asBefore(taint, reason, message)
	}
	return &Outcome{Reason: reason, Message: message}
}

func decidedTaint(d *v1alpha1.GPUDecision) v1alpha1.TaintReason {
	if d == nil {
		return ""
	}
	return d.Taint
}

// driverAnswers: without NVML nothing can be prepared, and nobody knows what is there. What was published stays, since
// some of it can be allocated already.
func driverAnswers(s situation) *Outcome {
	if s.in.Failed == "" {
		return nil
	}
	message := "NVML does not answer; see the condition DriverAvailable"
	if s.before == nil {
		return &Outcome{Reason: s.in.Failed, Message: message}
	}
	return s.asBefore(s.in.Failed, s.in.Failed, message)
}

// isOurs: where somebody else uses a MIG instance on a GPU whose instances come and go with claims, nobody new is sent there.
func isOurs(s situation) *Outcome {
	trouble := s.in.Troubles[s.uuid]
	if trouble.Reason != v1alpha1.ReasonForeignInstances || devices.Static(*s.decided) {
		return nil // of layouts more is said elsewhere
	}
	if s.before == nil {
		return &Outcome{Reason: trouble.Reason, Message: trouble.Message}
	}
	return s.asBefore(trouble.Reason, trouble.Reason, trouble.Message)
}

func isThere(s situation) *Outcome {
	if s.seen != nil {
		return nil
	}
	// A GPU that does not answer for a while goes on being offered, tainted, and so does one that was lost not long ago:
	// some of it can be allocated already, and the taint drives that away.
	if v := s.in.Health[s.uuid]; s.before != nil && v.Sick() && (s.used || !v.Forget) {
		return s.asBefore("", v1alpha1.ReasonUnhealthy, v.Message)
	}
	if v := s.in.Health[s.uuid]; v.Sick() {
		return s.inUseAsBefore("", v1alpha1.ReasonUnhealthy, v.Message)
	}
	return s.inUseAsBefore(v1alpha1.ReasonGPUMissing, v1alpha1.ReasonGPUMissing,
		"NVML does not show this GPU any more; look at nvidia-smi and the kernel's log for XID errors")
}

func belongsToUs(s situation) *Outcome {
	if s.in.Foreign == "" {
		return nil
	}
	return s.inUseAsBefore(v1alpha1.ReasonForeignDriver, v1alpha1.ReasonForeignDriver,
		"this node's GPUs are handed out by "+s.in.Foreign+" as well")
}

func isDecided(s situation) *Outcome {
	switch {
	case s.decided != nil:
		return nil
	case s.in.Undecided && s.before != nil:
		form := s.before.Form
		return &Outcome{Form: &form, Reason: v1alpha1.ReasonPublished}
	case s.used && s.before != nil:
		return s.asBefore(string(v1alpha1.TaintNotSelected), v1alpha1.ReasonInUse,
			"no pool holds the GPU any more, but claims are prepared on it")
	default:
		return &Outcome{Reason: v1alpha1.ReasonNoPool}
	}
}

func keepsShape(s situation) *Outcome {
	if s.before == nil || !s.used || SameShape(s.before.Form, *s.decided) {
		return nil
	}
	return s.asBefore(string(v1alpha1.TaintPoolChanged), v1alpha1.ReasonInUse,
		fmt.Sprintf("it stays as pool %s published it until the claims prepared on it are released", s.before.Form.Pool))
}

// SameShape is true where going from one form to the other changes amounts only: devices stay what they are.
func SameShape(a, b v1alpha1.GPUDecision) bool {
	return a.Pool == b.Pool && a.Partitioning == b.Partitioning && devices.Static(a) == devices.Static(b) && a.Sharing == b.Sharing
}

func canBeDivided(s situation) *Outcome {
	if s.decided.Partitioning != v1alpha1.PartitioningMIG {
		return nil
	}
	g := s.seen
	switch {
	case g.Licence != "":
		return s.inUseAsBefore(v1alpha1.ReasonMIGNotSupported, v1alpha1.ReasonMIGNotSupported, fmt.Sprintf(
			"%s is a virtual GPU, which only its hypervisor can divide; let a pool with partitioning None select it", g.Product))
	case g.MIGMode == gpu.MIGUnsupported || len(g.Profiles) == 0:
		return s.inUseAsBefore(v1alpha1.ReasonMIGNotSupported, v1alpha1.ReasonMIGNotSupported,
			fmt.Sprintf("%s with driver %s has no MIG; let a pool with partitioning None select it", g.Product, s.in.Look.DriverVersion))
	case g.MIGMode == gpu.MIGDisabled && !g.MIGModeSwitchable:
		return s.inUseAsBefore(v1alpha1.ReasonMIGModeOff, v1alpha1.ReasonMIGModeOff, turnOnMIG(*g))
	default:
		return nil
	}
}

// turnOnMIG says what an operator has to do where a reset is needed. The agent never resets a GPU.
func turnOnMIG(g gpu.GPU) string {
	if g.MIGModePending {
		return fmt.Sprintf("MIG mode comes on with the GPU's next reset: stop what uses the GPU, then run "+
			"`nvidia-smi -i %s --gpu-reset` on the node, or boot it where the GPU cannot be reset, as in a virtual machine", g.UUID)
	}
	return fmt.Sprintf("MIG mode is off and this board needs a reset to turn it on: stop what uses the GPU, then run "+
		"`nvidia-smi -i %[1]s -mig 1 && nvidia-smi -i %[1]s --gpu-reset` on the node", g.UUID)
}

func canBeWhole(s situation) *Outcome {
	if s.decided.Partitioning == v1alpha1.PartitioningMIG || s.seen.MIGMode != gpu.MIGEnabled {
		return nil
	}
	return s.inUseAsBefore(v1alpha1.ReasonMIGModeOn, v1alpha1.ReasonMIGModeOn, fmt.Sprintf(
		"MIG mode is on, so the GPU cannot be used whole: run `nvidia-smi -i %s -mig 0` on the node, or let a MIG pool select it",
		s.seen.UUID))
}

// isHeld keeps back a GPU whose pool demands the driver's memory limits, where the driver does not hold them.
func isHeld(s situation) *Outcome {
	if !memlimits.Demanded(*s.decided) {
		return nil
	}
	held := s.limits(*s.decided)
	switch {
	case held.HeldBy == v1alpha1.MemoryLimitsDriver:
		return nil
	case held.HeldBy == "" && s.before != nil && s.before.MemoryLimits == v1alpha1.MemoryLimitsDriver:
		return nil // the driver does not answer now; it did before
	}
	reason := cmp.Or(held.Reason, v1alpha1.ReasonLimitsRefused)
	return s.inUseAsBefore(reason, reason, memlimits.Unheld(held))
}
