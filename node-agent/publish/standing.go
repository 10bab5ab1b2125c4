// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// Trouble is what stands against dividing a GPU as decided.
type Trouble struct {
	// Reason is one of the API's, Message a sentence.
	Reason, Message string
}

// divide adds to the outcome of a static GPU the instances to offer, and what stands against its layout.
func (s situation) divide(o *Outcome) {
	if o.Form == nil || !devices.Static(*o.Form) {
		return
	}
	if s.seen == nil {
		if s.before != nil {
			o.Instances = slices.Clone(s.before.Instances)
		}
		return
	}
	wanted := devices.Wanted(*o.Form)
	o.Instances = s.standing(wanted)
	if !o.AsDecided {
		return
	}
	trouble := s.in.Troubles[s.uuid]
	switch missing := s.missing(wanted); {
	case len(wanted) == 0:
		o.Reason, o.Message = v1alpha1.ReasonLayoutUndecided, "no layout of the pool is for this GPU, or its board can hold none; the pool says which"
	case trouble.Reason != "":
		o.Reason, o.Message = trouble.Reason, trouble.Message
	case len(missing) > 0:
		o.Reason, o.Message = v1alpha1.ReasonDividing, "being made: "+strings.Join(missing, ", ")
	default:
		return
	}
	o.AsDecided = false
}

// standing are the instances to offer: those that are wanted and there, and, tainted, what has been offered and cannot be
// withdrawn: what a claim has, and what is wanted and about to be made again.
func (s situation) standing(wanted []gpu.Placement) []checkpoint.Standing {
	var list []checkpoint.Standing
	for _, p := range wanted {
		before := s.offered(p)
		there := s.there(p)
		switch {
		case there != nil:
			list = append(list, s.offer(p, there.UUID, before))
		case before != nil:
			again := *before
			again.Taint = v1alpha1.TaintReason(v1alpha1.ReasonDividing)
			list = append(list, again)
		}
	}
	if s.before != nil {
		for _, before := range s.before.Instances {
			if p := before.Placement.GPU(); !slices.Contains(wanted, p) && slices.Contains(s.in.Held[s.uuid], p) {
				before.Taint = v1alpha1.TaintLayoutChanged
				list = append(list, before)
			}
		}
	}
	slices.SortFunc(list, func(a, b checkpoint.Standing) int { return cmp.Compare(a.Start, b.Start) })
	return list
}

// offer describes an instance that is there. One that was offered before keeps the amounts under which claims have it.
func (s situation) offer(p gpu.Placement, uuid string, before *checkpoint.Standing) checkpoint.Standing {
	if before != nil {
		same := *before
		same.UUID, same.Taint = uuid, ""
		return same
	}
	profile, _ := s.seen.Profile(p.Profile)
	return checkpoint.Standing{
		Placement: checkpoint.Placement{Profile: p.Profile, Start: p.Start, Size: profile.MemorySlices}, UUID: uuid,
		MemoryBytes: profile.MemoryBytes, Compute: profile.Compute(s.seen.ComputeSlices),
	}
}

// offered is the instance at a placement as it was offered so far; nil where it was not.
func (s situation) offered(p gpu.Placement) *checkpoint.Standing {
	if s.before == nil {
		return nil
	}
	return s.before.At(p)
}

// there is the complete instance at a placement; nil where there is none.
func (s situation) there(p gpu.Placement) *gpu.Instance {
	i := slices.IndexFunc(s.seen.Instances, func(i gpu.Instance) bool {
		return i.Profile == p.Profile && i.Start == p.Start && i.UUID != ""
	})
	if i < 0 {
		return nil
	}
	return &s.seen.Instances[i]
}

// missing are the wanted instances that are not there, for people.
func (s situation) missing(wanted []gpu.Placement) []string {
	var missing []string
	for _, p := range wanted {
		if s.there(p) == nil {
			missing = append(missing, fmt.Sprintf("%s at %d", p.Profile, p.Start))
		}
	}
	return missing
}
