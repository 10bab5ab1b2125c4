// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

func setConditions(s *v1alpha1.GPUNodeStatus, f Facts) {
	for _, c := range []metav1.Condition{
		ready(f), driverAvailable(f), foreignDriver(f), migModeOff(f), enforcing(f), mpsServing(f), limitsViolated(f), memoryUnverified(f),
	} {
		c.ObservedGeneration = f.Generation
		c.LastTransitionTime = f.Now
		c.Message = shorten(c.Message, maxCondMsg)
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

// ready is about the GPUs that a pool holds: the first that is not published as decided speaks for all.
func ready(f Facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.NodeReady, Status: metav1.ConditionFalse}
	held, wrong := 0, []publish.Outcome{}
	for _, o := range f.Outcomes {
		if o.Decided {
			held++
		}
		if (o.Decided && !o.AsDecided) || o.Reason == v1alpha1.ReasonInUse {
			wrong = append(wrong, o)
		}
	}
	switch {
	case f.DriverFailed != "":
		c.Reason, c.Message = f.DriverFailed, f.DriverMessage
	case f.Foreign != "":
		c.Reason, c.Message = v1alpha1.ReasonForeignDriver, "nothing new is published: this node's GPUs are handed out by "+f.Foreign+" as well"
	case len(wrong) > 0:
		c.Reason = wrong[0].Reason
		c.Message = sentence(wrong)
	case !f.Settled:
		c.Reason, c.Message = v1alpha1.ReasonPublishing, publishingMessage(f)
	case held == 0:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonNoPool
		c.Message = "no pool holds a GPU of this node"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPublished
		c.Message = fmt.Sprintf("%d of %d GPUs are held by pools and published as decided", held, len(f.Outcomes))
	}
	return c
}

// sentence tells the first GPU's trouble in full and how many others have some.
func sentence(wrong []publish.Outcome) string {
	text := fmt.Sprintf("%s: %s", nameOf(wrong[0]), wrong[0].Message)
	if more := len(wrong) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more GPUs; see status.gpus)", more)
	}
	return text
}

func nameOf(o publish.Outcome) string {
	if o.Facts.Product == "" {
		return "GPU " + o.Facts.UUID
	}
	return fmt.Sprintf("%s (%s)", devices.Name(o.Minor), o.Facts.UUID)
}

func driverAvailable(f Facts) metav1.Condition {
	if f.DriverFailed != "" {
		return metav1.Condition{
			Type: v1alpha1.NodeDriverAvailable, Status: metav1.ConditionFalse,
			Reason: f.DriverFailed, Message: f.DriverMessage,
		}
	}
	message := "NVML answers, driver " + f.DriverVersion
	if f.DriverMessage != "" {
		message += "; not every GPU does: " + f.DriverMessage
	}
	return metav1.Condition{
		Type: v1alpha1.NodeDriverAvailable, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonNVMLAvailable, Message: message,
	}
}

func foreignDriver(f Facts) metav1.Condition {
	if f.Foreign == "" {
		return metav1.Condition{
			Type: v1alpha1.NodeForeignDriver, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonNoForeignDriver, Message: "nobody else hands out this node's GPUs",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.NodeForeignDriver, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonForeignDriver,
		Message: fmt.Sprintf("this node's GPUs are handed out by %s as well; remove it from the node, or take the node out of the pools",
			f.Foreign),
	}
}

func migModeOff(f Facts) metav1.Condition {
	var names []string
	var first string
	for _, o := range f.Outcomes {
		if o.Reason == v1alpha1.ReasonMIGModeOff {
			names = append(names, nameOf(o))
			if first == "" {
				first = o.Message
			}
		}
	}
	if len(names) == 0 {
		return metav1.Condition{
			Type: v1alpha1.NodeMIGModeOff, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonMIGModeAsNeeded, Message: "no GPU waits for MIG mode",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.NodeMIGModeOff, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMIGModeOff,
		Message: fmt.Sprintf("%s: %s", strings.Join(names, ", "), first),
	}
}

func enforcing(f Facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.NodeEnforcing, Status: metav1.ConditionFalse}
	switch {
	case f.LibraryFailed != nil:
		c.Reason = v1alpha1.ReasonLibraryFailed
		c.Message = "no share of a pool with Software sharing is prepared: " + f.LibraryFailed.Error()
	case f.LibraryVersion == "":
		c.Reason = v1alpha1.ReasonNoLibrary
		c.Message = "shares are counted, but nothing holds their tenants to them: the agent was started without --library"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonLibraryPlaced
		c.Message = "containers with a share start with version " + f.LibraryVersion + " of the library"
	}
	return c
}
