// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// situation is what is known of one GPU that has, or had, a static layout.
type situation struct {
	gpu gpu.GPU
	// wanted are the instances of the layout; leaving is true where the GPU has none any more.
	wanted  []gpu.Placement
	leaving bool
	// offered are the instances that were there when the GPU was last published.
	offered []gpu.Placement
	// claims are all of the node's.
	claims checkpoint.Claims
	// made are the instances that are the agent's.
	made checkpoint.Made
	// processes are those on the GPU.
	processes []holders.Process
}

// work is what is to be done about one GPU. Where there is trouble, nothing is.
type work struct {
	uuid   string
	turnOn bool
	// keep are the instances that are as wanted.
	keep    []gpu.Placement
	destroy []gpu.Instance
	// complete are wanted instances without a compute instance: a creation was cut short, or somebody destroyed it.
	complete []gpu.Instance
	create   []gpu.Placement
	// foreign says what somebody else has done to the instances; "" for nothing.
	foreign string
	trouble publish.Trouble
}

func (w work) nothing() bool {
	return !w.turnOn && len(w.destroy) == 0 && len(w.complete) == 0 && len(w.create) == 0
}

// standing are the instances of the layout that are there or going to be made.
func (w work) standing() []gpu.Placement {
	standing := slices.Concat(w.keep, w.create)
	for _, i := range w.complete {
		standing = append(standing, placement(i))
	}
	return standing
}

// decide compares what is there with what is wanted, by profile and start. A change is made as a whole or not at all: where
// one instance that has to go is in use, all stay as they are.
func decide(s situation) work {
	w := work{uuid: s.gpu.UUID}
	switch {
	case s.leaving:
		for _, i := range s.gpu.Instances {
			if s.made.Has(s.gpu.UUID, placement(i)) && len(s.holding(i)) == 0 {
				w.destroy = append(w.destroy, i)
			}
		}
		return w
	case len(s.wanted) == 0 || !divisible(s.gpu):
		return w // the outcome of publishing says why
	}
	if reason := impossible(s.gpu, s.wanted); reason != "" {
		w.trouble = publish.Trouble{Reason: v1alpha1.ReasonDivideFailed, Message: reason}
		return w
	}
	if s.gpu.MIGMode != gpu.MIGEnabled {
		if users := onInstance(s.processes, wholeGPU); len(users) > 0 {
			w.trouble = publish.Trouble{
				Reason:  v1alpha1.ReasonInUse,
				Message: "MIG mode cannot be turned on while the GPU is used by " + strings.Join(users, ", "),
			}
			return w
		}
		w.turnOn, w.create = true, slices.Clone(s.wanted)
		return w
	}
	return s.compare(w)
}

// compare sorts the instances that are there into those that stay, those to complete and those that have to go.
func (s situation) compare(w work) work {
	missing := slices.Clone(s.wanted)
	for _, i := range s.gpu.Instances {
		at := slices.Index(missing, placement(i))
		switch {
		case at >= 0 && i.UUID != "":
			missing = slices.Delete(missing, at, at+1)
			w.keep = append(w.keep, placement(i))
		case at >= 0:
			missing = slices.Delete(missing, at, at+1)
			w.complete = append(w.complete, i)
		default:
			w.destroy = append(w.destroy, i)
		}
	}
	w.create = missing
	w.foreign = s.foreign(w)
	for _, i := range w.destroy {
		if users := s.holding(i); len(users) > 0 {
			return work{uuid: w.uuid, trouble: s.inTheWay(i, users)}
		}
	}
	return w
}

// foreign describes instances that somebody else made, and those of the layout that somebody else destroyed. After a boot or
// a reset nothing is left, which is nobody's doing.
func (s situation) foreign(w work) string {
	var parts []string
	for _, i := range w.destroy {
		if !s.made.Has(w.uuid, placement(i)) && !s.claims.IdleAt(w.uuid, placement(i)) {
			parts = append(parts, fmt.Sprintf("somebody made %s at %d", i.Profile, i.Start))
		}
	}
	for _, p := range w.create {
		if len(w.keep) > 0 && s.made.Has(w.uuid, p) && s.wasOffered(p) {
			parts = append(parts, fmt.Sprintf("somebody destroyed %s at %d", p.Profile, p.Start))
		}
	}
	return strings.Join(parts, ", ")
}

// wasOffered is true where an instance was there before.
func (s situation) wasOffered(p gpu.Placement) bool { return slices.Contains(s.offered, p) }

// inTheWay is the trouble with an instance that has to go and is in use.
func (s situation) inTheWay(i gpu.Instance, users []string) publish.Trouble {
	if s.made.Has(s.gpu.UUID, placement(i)) {
		return publish.Trouble{Reason: v1alpha1.ReasonInUse, Message: fmt.Sprintf(
			"%s at %d has to go first, which is used by %s", i.Profile, i.Start, strings.Join(users, ", "))}
	}
	return publish.Trouble{Reason: v1alpha1.ReasonForeignInstances, Message: fmt.Sprintf(
		"%s at %d was made by somebody else and is used by %s; it is destroyed when it is not",
		i.Profile, i.Start, strings.Join(users, ", "))}
}

// holding names who has an instance: pods of claims, and processes.
func (s situation) holding(i gpu.Instance) []string {
	var names []string
	for _, claim := range s.claims.Sorted() {
		for _, r := range claim.Results {
			if r.GPU == s.gpu.UUID && r.Placement != nil && !r.Admin && r.Placement.GPU() == placement(i) {
				names = append(names, claim.Users()...)
			}
		}
	}
	return append(names, onInstance(s.processes, i.GIID)...)
}

// onInstance names the processes on an instance. A tenant's process on an instance that no claim has is no less in the way.
func onInstance(processes []holders.Process, giID int) []string {
	var names []string
	for _, p := range processes {
		if p.GIID == giID {
			names = append(names, p.Name)
		}
	}
	return names
}

// wholeGPU stands for the instance of a process that is on none.
const wholeGPU = -1

func placement(i gpu.Instance) gpu.Placement {
	return gpu.Placement{Profile: i.Profile, Start: i.Start}
}

// divisible is true where the agent may divide the GPU: a MIG mode that takes a reset is an operator's to turn on.
func divisible(g gpu.GPU) bool {
	return g.MIGMode == gpu.MIGEnabled || (g.MIGMode == gpu.MIGDisabled && g.MIGModeSwitchable)
}

// impossible says why a board cannot hold the wanted instances; "" where it can. What was decided with another driver's
// profiles may not fit those of this one, and then nothing is touched.
func impossible(g gpu.GPU, wanted []gpu.Placement) string {
	board := layout.BoardOf(g)
	if err := layout.Check(board, layout.Of(wanted)); err != nil {
		return err.Error()
	}
	current := make([]layout.Instance, 0, len(wanted))
	for _, p := range wanted {
		profile, _ := g.Profile(p.Profile)
		if !slices.Contains(profile.Starts, p.Start) {
			return fmt.Sprintf("%s cannot have %s at %d, only at %v", g.Product, p.Profile, p.Start, profile.Starts)
		}
		current = append(current, layout.Instance{Placement: p})
	}
	change, err := layout.Plan(board, current, layout.Of(wanted))
	if err != nil {
		return err.Error()
	}
	if !change.Nothing() {
		return fmt.Sprintf("%s cannot have all at once: %s", g.Product, describe(wanted))
	}
	return ""
}

func describe(placements []gpu.Placement) string {
	parts := make([]string, 0, len(placements))
	for _, p := range placements {
		parts = append(parts, fmt.Sprintf("%s at %d", p.Profile, p.Start))
	}
	return strings.Join(parts, ", ")
}
