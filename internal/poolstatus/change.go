// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/rollouts"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

// layoutInvalid is True when GPUs have no layout that their board can hold.
func layoutInvalid(plan rollouts.Plan) metav1.Condition {
	if len(plan.Refused) == 0 {
		return condition(v1alpha1.PoolLayoutInvalid, false, v1alpha1.ReasonLayoutsPossible, "every GPU can have the form that the pool wants for it")
	}
	return condition(v1alpha1.PoolLayoutInvalid, true, plan.RefusedReason, sentences(plan.Refused))
}

// rollingOut is True while GPUs are not yet as the pool wants them.
func rollingOut(plan rollouts.Plan) metav1.Condition {
	message := plan.Message
	if message == "" {
		message = "every GPU has the form that the pool wants for it"
	}
	return condition(v1alpha1.PoolRollingOut, plan.Reason != v1alpha1.ReasonRolledOut, plan.Reason, message)
}

// scheduleConflict is True when schedules are not followed as they are written.
func scheduleConflict(table timetable.Timetable) metav1.Condition {
	conflict := table.Conflict()
	if conflict.Reason == "" {
		return condition(v1alpha1.PoolScheduleConflict, false, v1alpha1.ReasonNoScheduleConflict, "every schedule of the pool can be followed")
	}
	return condition(v1alpha1.PoolScheduleConflict, true, conflict.Reason, conflict.Message)
}

// excluding is True while GPUs are excluded. What is excluded and no GPU of the pool is told: it may be a slip of the pen.
func excluding(f facts) metav1.Condition {
	e := f.excluded
	var c metav1.Condition
	switch {
	case e.gpus == 0:
		c = condition(v1alpha1.PoolExcluding, false, v1alpha1.ReasonNothingExcluded, "no GPU that the pool holds is excluded")
	case len(e.tenants) > 0:
		c = condition(v1alpha1.PoolExcluding, true, v1alpha1.ReasonTenantsRemain,
			fmt.Sprintf("%s excluded, still held by %s", plural(e.gpus, "GPU"), list(e.tenants)))
	default:
		c = condition(v1alpha1.PoolExcluding, true, v1alpha1.ReasonGPUsExcluded,
			fmt.Sprintf("%s excluded, and nobody holds them", plural(e.gpus, "GPU")))
	}
	if len(f.unknown) > 0 {
		c.Message += "; the pool has no GPU " + list(f.unknown)
	}
	return c
}

// unhealthy is True while GPUs of the pool are suspect or lost.
func unhealthy(f facts) metav1.Condition {
	if len(f.unhealthy) == 0 {
		return condition(v1alpha1.PoolUnhealthy, false, v1alpha1.ReasonAllHealthy, "nothing is known against any GPU of the pool")
	}
	lost := 0
	var parts []string
	for _, p := range f.unhealthy {
		if p.lost {
			lost++
		}
		part := fmt.Sprintf("%s of node %s: %s", p.device, p.node, p.reason)
		if p.message != "" {
			part += " (" + p.message + ")"
		}
		parts = append(parts, part)
	}
	return condition(v1alpha1.PoolUnhealthy, true, v1alpha1.ReasonGPUsUnhealthy,
		fmt.Sprintf("%s suspect, %d lost: %s", plural(len(f.unhealthy)-lost, "GPU"), lost, sentences(parts)))
}

// sentences joins up to maxNames sentences and counts the others.
func sentences(all []string) string {
	if len(all) > maxNames {
		return strings.Join(all[:maxNames], "; ") + fmt.Sprintf("; and %d more", len(all)-maxNames)
	}
	return strings.Join(all, "; ")
}
