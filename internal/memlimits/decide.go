// SPDX-License-Identifier: Apache-2.0

// Package memlimits decides what holds shares to their memory on a GPU, NVIDIA's driver by cgroup or the library alone, and
// which limits the driver is to be given for which cgroup. It is pure.
package memlimits

import (
	"fmt"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Answer is what trying a limit on a GPU has shown.
type Answer string

const (
	// Unasked: nobody has tried, or the driver did not answer.
	Unasked Answer = ""
	// Works: the driver took a limit and told it again.
	Works Answer = "Works"
	// NoCgroupV2: the node has no cgroup v2 file system where it is looked for.
	NoCgroupV2 Answer = "NoCgroupV2"
	// Unsupported: the driver says that it has no such limits.
	Unsupported Answer = "Unsupported"
	// Refused: the driver has them, and refused.
	Refused Answer = "Refused"
)

// Probe is what is known of a GPU and its driver.
type Probe struct {
	Answer Answer
	// Backend is where the driver keeps limits, where that works.
	Backend v1alpha1.LimitsBackend
	// Message is the driver's, or the node's, own answer.
	Message string
}

// firstBranch is the driver branch that brought memory limits by cgroup.
const firstBranch = 615

// Decide says what holds the memory limits of shares on a GPU in its form. The zero value says that nobody knows yet.
func Decide(form v1alpha1.GPUDecision, driverVersion string, probe Probe) v1alpha1.GPUMemoryLimits {
	switch {
	case form.Sharing != v1alpha1.SharingSoftware:
		return library(v1alpha1.ReasonPoolDecides, "the pool's sharing is "+string(form.Sharing)+", in which memory limits by cgroup are not used")
	case form.MemoryLimits == v1alpha1.MemoryLimitsInterceptor:
		return library(v1alpha1.ReasonPoolDecides, "the pool's sharing.memoryLimits is Interceptor")
	case form.Partitioning == v1alpha1.PartitioningMIG:
		return library(v1alpha1.ReasonMIGInstances, "the driver has no memory limits by cgroup on MIG instances; what an instance has is held by the hardware")
	}
	switch probe.Answer {
	case Works:
		return held(probe.Backend)
	case NoCgroupV2:
		return library(v1alpha1.ReasonCgroupV1, probe.Message)
	case Unsupported:
		if branch(driverVersion) < firstBranch {
			return library(v1alpha1.ReasonDriverTooOld, fmt.Sprintf(
				"driver %s has no memory limits by cgroup, which came with R%d", driverVersion, firstBranch))
		}
		return library(v1alpha1.ReasonLimitsRefused, probe.Message)
	case Refused:
		return library(v1alpha1.ReasonLimitsRefused, probe.Message)
	default:
		return v1alpha1.GPUMemoryLimits{}
	}
}

func library(reason, message string) v1alpha1.GPUMemoryLimits {
	return v1alpha1.GPUMemoryLimits{HeldBy: v1alpha1.MemoryLimitsInterceptor, Reason: reason, Message: message}
}

func held(backend v1alpha1.LimitsBackend) v1alpha1.GPUMemoryLimits {
	l := v1alpha1.GPUMemoryLimits{HeldBy: v1alpha1.MemoryLimitsDriver, Backend: backend}
	if backend == v1alpha1.LimitsBackendMisc {
		l.Message = "the driver holds each container; what containers of one share hold together, the library does"
	} else {
		l.Message = "the driver holds each container and each pod; what pods of one share hold together, the library does"
	}
	return l
}

// branch is the number before the first point of a driver's version, 0 where it has none.
func branch(version string) int {
	n := 0
	for _, c := range version {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// Depends is true where what holds the limits of a form's shares depends on the driver.
func Depends(form v1alpha1.GPUDecision) bool { return Decide(form, "", Probe{}).HeldBy == "" }

// Demanded is true where shares of a form must not be prepared unless the driver holds them.
func Demanded(form v1alpha1.GPUDecision) bool {
	return form.Sharing == v1alpha1.SharingSoftware && form.MemoryLimits == v1alpha1.MemoryLimitsDriver
}

// FellBack is true where the pool would have the driver hold limits, and it does not.
func FellBack(form v1alpha1.GPUDecision, l v1alpha1.GPUMemoryLimits) bool {
	return form.Sharing == v1alpha1.SharingSoftware && form.MemoryLimits != v1alpha1.MemoryLimitsInterceptor &&
		l.HeldBy == v1alpha1.MemoryLimitsInterceptor
}

// Unheld says what is to be done where the pool demands the driver's limits and the driver does not hold them.
func Unheld(l v1alpha1.GPUMemoryLimits) string {
	why := l.Message
	if l.HeldBy == "" {
		why = "the driver has not answered yet"
	}
	return "the pool's sharing.memoryLimits is Driver, but " + why + "; " + remedy(l.Reason) +
		", or set sharing.memoryLimits to Auto"
}

func remedy(reason string) string {
	switch reason {
	case v1alpha1.ReasonDriverTooOld:
		return fmt.Sprintf("install driver R%d or newer on the node", firstBranch)
	case v1alpha1.ReasonCgroupV1:
		return "boot the node with cgroup v2"
	case v1alpha1.ReasonMIGInstances:
		return "choose partitioning None"
	case v1alpha1.ReasonLimitsRefused:
		return "see docs/memory-limits.md for what the driver needs of the node"
	default:
		return "look at the condition DriverAvailable"
	}
}
