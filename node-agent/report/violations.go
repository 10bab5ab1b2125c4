// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

const (
	maxViolations = 64
	// maxTold bounds how many a condition's message tells in full.
	maxTold = 4
)

// violations are those that are found now. An agent that has not looked often enough yet leaves them as they were, and one
// that finds what was found before it says since when.
func violations(f Facts) []v1alpha1.Violation {
	if !f.Violations.Known {
		return f.Before.Violations
	}
	list := slices.Clone(f.Violations.Violations)
	for i := range list {
		v := &list[i]
		for _, before := range f.Before.Violations {
			if before.ClaimUID == v.ClaimUID && *before.Result == *v.Result && before.Reason == v.Reason && before.Since.Before(v.Since) {
				v.Since = before.Since
			}
		}
	}
	return list[:min(len(list), maxViolations)]
}

// limitsViolated is about the shares that are not kept to: those that are so the longest speak for all.
func limitsViolated(f Facts) metav1.Condition {
	if old, keep := asBefore(f, v1alpha1.NodeLimitsViolated); keep {
		return old
	}
	c := metav1.Condition{Type: v1alpha1.NodeLimitsViolated, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWithinLimits}
	list := f.Violations.Violations
	if len(list) == 0 {
		c.Message = "no share holds more than it may"
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, list[0].Reason
	var told []string
	for _, v := range list[:min(len(list), maxTold)] {
		told = append(told, violationSentence(v))
	}
	c.Message = strings.Join(told, "; ")
	if more := len(list) - maxTold; more > 0 {
		c.Message += fmt.Sprintf(" (and %d more; see status.violations)", more)
	}
	return c
}

func violationSentence(v v1alpha1.Violation) string {
	who := "claim " + v.Claim
	if len(v.Pods) > 0 {
		who = strings.Join(v.Pods, ", ")
	}
	if v.Reason == v1alpha1.ReasonOverLimit {
		return fmt.Sprintf("%s hold %s of %s, more than %s", who, v.Held, v.GPU, v.Limit)
	}
	return fmt.Sprintf("%s use %s past the library: %s", who, v.GPU, strings.Join(v.Processes, ", "))
}

// memoryUnverified is about what nobody can judge.
func memoryUnverified(f Facts) metav1.Condition {
	if old, keep := asBefore(f, v1alpha1.NodeMemoryUnverified); keep {
		return old
	}
	c := metav1.Condition{Type: v1alpha1.NodeMemoryUnverified, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonVerified}
	switch list := f.Violations.Unverified; {
	case len(list) > 0:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonNoFigures
		c.Message = strings.Join(list[:min(len(list), maxTold)], "; ")
		if more := len(list) - maxTold; more > 0 {
			c.Message += fmt.Sprintf(" (and %d more)", more)
		}
	case f.Violations.Shares == 0:
		c.Message = "there is no share to be held against its limit"
	default:
		c.Message = fmt.Sprintf("NVML says what every process of %d shares holds", f.Violations.Shares)
	}
	return c
}

// asBefore is a condition as it stands, where nobody has looked often enough yet to say anything else.
func asBefore(f Facts, condition string) (metav1.Condition, bool) {
	old := meta.FindStatusCondition(f.Before.Conditions, condition)
	if f.Violations.Known || old == nil {
		return metav1.Condition{}, false
	}
	return *old, true
}
