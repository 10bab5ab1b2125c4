// SPDX-License-Identifier: Apache-2.0

// Package report puts together the status of a GPUNode: what is really there, as one value, from one look at everything.
package report

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
	"github.com/sluice-gpu/sluice/node-agent/publish"
	seen "github.com/sluice-gpu/sluice/node-agent/violations"
)

// Facts are everything that a status says.
type Facts struct {
	// Before is the status as it stands; only the times of conditions that do not change are taken from it, and what
	// cannot be looked at while NVML is away.
	Before v1alpha1.GPUNodeStatus
	// Now is the time of conditions that change.
	Now metav1.Time
	// Generation is that of the spec that the outcomes follow.
	Generation int64
	// Outcomes are the plan.
	Outcomes []publish.Outcome
	// DriverVersion is NVIDIA's driver's.
	DriverVersion string
	// DriverFailed is the reason for which NVML does not answer, "" where it does; DriverMessage is what was tried.
	DriverFailed, DriverMessage string
	// Foreign names who else hands out the GPUs.
	Foreign string
	// Published is what the ResourceSlices say, by UUID; Settled is true where that is all that is wanted, and
	// PublishError the last thing that went wrong on the way.
	Published    map[string]v1alpha1.PublishedForm
	Settled      bool
	PublishError string
	// LibraryVersion is the version of the library that new shares get, "" where they get none, and LibraryFailed why it
	// cannot be given to them.
	LibraryVersion string
	LibraryFailed  error
	// MPS is what was seen of the devices that MPS holds.
	MPS watch.Report
	// MPSFailed is why devices that are offered to be shared by MPS cannot be; nil where they can, or none is.
	MPSFailed error
	// Violations are what was seen of shares that are not kept to.
	Violations seen.Report
	// InUse counts the claims of each GPU, by UUID.
	InUse map[string]int
	// Claims are the node's, and Processes those on each GPU, by UUID.
	Claims    checkpoint.Claims
	Processes map[string][]holders.Process
}

const (
	// Bounds of the API.
	maxMessage  = 512
	maxCondMsg  = 1024
	maxProducts = 256
	maxProfiles = 256
	maxGPUs     = 64
)

// Status is the status that the facts make.
func Status(f Facts) v1alpha1.GPUNodeStatus {
	s := v1alpha1.GPUNodeStatus{
		Conditions:         slices.Clone(f.Before.Conditions),
		ObservedGeneration: f.Before.ObservedGeneration,
		DriverVersion:      f.DriverVersion,
	}
	if f.Settled {
		s.ObservedGeneration = f.Generation
	}
	published := 0
	for _, o := range f.Outcomes {
		if o.Facts.Product == "" || len(s.GPUs) == maxGPUs {
			continue // decided, but never seen: there is nothing to say but in Ready's message
		}
		g := gpuStatus(o, f)
		if g.Published != (v1alpha1.PublishedForm{}) {
			published++
		}
		s.GPUs = append(s.GPUs, g)
	}
	s.Products = products(s.GPUs)
	s.Profiles = profiles(f.Outcomes)
	s.Violations = violations(f)
	s.Summary = fmt.Sprintf("%d/%d GPUs", published, len(s.GPUs))
	setConditions(&s, f)
	return s
}

func gpuStatus(o publish.Outcome, f Facts) v1alpha1.GPUStatus {
	uuid := o.Facts.UUID
	g := v1alpha1.GPUStatus{
		UUID: uuid, Minor: ptr.To(int32(o.Minor)),
		Product: o.Facts.Product, Architecture: o.Facts.Architecture,
		Memory:  resource.NewQuantity(o.Facts.MemoryBytes, resource.BinarySI),
		Tenants: ptr.To(int32(f.InUse[uuid])),
		Reason:  o.Reason, Message: shorten(o.Message, maxMessage),
		HeldBy: f.heldBy(uuid),
	}
	g.Health = f.health(o)
	g.MemoryLimits = f.memoryLimits(o)
	if o.Seen != nil && o.Seen.Licence != "" {
		g.Virtual.Licence = v1alpha1.LicenceState(o.Seen.Licence)
	}
	if form, ok := f.Published[uuid]; ok {
		g.Published = form
	}
	if o.Form != nil && o.AsDecided && !f.Settled {
		g.Reason, g.Message = v1alpha1.ReasonPublishing, shorten(publishingMessage(f), maxMessage)
	}
	switch {
	case o.Seen != nil:
		g.MIGMode = v1alpha1.MIGModeState(o.Seen.MIGMode)
		g.Instances = f.instances(uuid, o.Seen.Instances)
	case f.DriverFailed != "":
		if i := slices.IndexFunc(f.Before.GPUs, func(b v1alpha1.GPUStatus) bool { return b.UUID == uuid }); i >= 0 {
			g.MIGMode, g.Instances = f.Before.GPUs[i].MIGMode, f.Before.GPUs[i].Instances
		}
	}
	return g
}

// memoryLimits says what holds the memory limits of a GPU's shares; what was known before where nobody knows now.
func (f Facts) memoryLimits(o publish.Outcome) v1alpha1.GPUMemoryLimits {
	l := o.Limits
	if l.HeldBy == "" && o.Form != nil {
		if i := slices.IndexFunc(f.Before.GPUs, func(b v1alpha1.GPUStatus) bool { return b.UUID == o.Facts.UUID }); i >= 0 {
			l = f.Before.GPUs[i].MemoryLimits
		}
	}
	l.Message = shorten(l.Message, maxMessage)
	return l
}

func publishingMessage(f Facts) string {
	if f.PublishError != "" {
		return "the ResourceSlices are not written yet: " + f.PublishError
	}
	return "the ResourceSlices are being written"
}

// products is one line: "4 × NVIDIA H100 80GB HBM3, 1 × NVIDIA A100".
func products(gpus []v1alpha1.GPUStatus) string {
	count := map[string]int{}
	for _, g := range gpus {
		count[g.Product]++
	}
	var parts []string
	for _, g := range gpus {
		if n := count[g.Product]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d × %s", n, g.Product))
			delete(count, g.Product)
		}
	}
	return shorten(strings.Join(parts, ", "), maxProducts)
}

// shorten keeps a text within a bound of the API, at a character's edge.
func shorten(s string, bound int) string {
	const dots = "…"
	if len(s) <= bound {
		return s
	}
	cut := bound - len(dots)
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + dots
}
