// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// StatusFacts are what there is to know about a quota beside how it stands.
type StatusFacts struct {
	// Entry is the namespace's in its ledger; the empty one where there is none.
	Entry Entry
	// MissingPools are pools that the quota names and that do not exist.
	MissingPools []string
	// Blocked is what keeps borrowed pods from being evicted, as the Eviction API said; "" for nothing.
	Blocked string
}

// Conditions are all conditions of a quota, without times and generations. Being full, exceeded or borrowed from does not
// make a quota less ready.
func (q *Quota) Conditions(s Standing, f StatusFacts) []metav1.Condition {
	return []metav1.Condition{q.ready(f), q.exceeded(s), q.joinedCondition(), q.borrowing(s), q.reclaiming(f)}
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func (q *Quota) ready(f StatusFacts) metav1.Condition {
	switch {
	case f.Entry.Unknown > 0:
		return condition(v1alpha1.QuotaReady, false, v1alpha1.ReasonUncounted,
			fmt.Sprintf("%d allocated devices are described by no node at the moment; they count as before", f.Entry.Unknown))
	case f.Entry.Version == "" || f.Entry.MovedTo != "":
		return condition(v1alpha1.QuotaReady, false, v1alpha1.ReasonCounting,
			"what the namespace holds is being counted; new allocations wait")
	case len(f.MissingPools) > 0:
		return condition(v1alpha1.QuotaReady, false, v1alpha1.ReasonPoolNotFound,
			fmt.Sprintf("no such GPUPool: %s", strings.Join(f.MissingPools, ", ")))
	default:
		return condition(v1alpha1.QuotaReady, true, v1alpha1.ReasonEnforced, "every allocation of the namespace is held against the quota")
	}
}

func (q *Quota) exceeded(s Standing) metav1.Condition {
	if s.Above.Zero() {
		return condition(v1alpha1.QuotaExceeded, false, v1alpha1.ReasonWithinHard, "the namespace holds no more than hard")
	}
	return condition(v1alpha1.QuotaExceeded, true, v1alpha1.ReasonAboveHard,
		fmt.Sprintf("%s above hard: what runs is kept, more is refused", list(s.Above)))
}

func (q *Quota) joinedCondition() metav1.Condition {
	return condition(v1alpha1.QuotaJoined, q.Joined, q.JoinReason, q.JoinMessage)
}

func (q *Quota) borrowing(s Standing) metav1.Condition {
	if s.Borrowed.Zero() {
		return condition(v1alpha1.QuotaBorrowing, false, v1alpha1.ReasonWithinGuarantee, "nothing is borrowed")
	}
	return condition(v1alpha1.QuotaBorrowing, true, v1alpha1.ReasonAboveGuarantee,
		fmt.Sprintf("%s borrowed from cohort %s, to be given back when others need it", list(s.Borrowed), q.Cohort))
}

func (q *Quota) reclaiming(f StatusFacts) metav1.Condition {
	if f.Entry.Wanted == nil || !q.Joined {
		return condition(v1alpha1.QuotaReclaiming, false, v1alpha1.ReasonNothingToReclaim, "no pod waits within the guarantee")
	}
	wanted := list(f.Entry.Wanted.Charges.In(q.Pools))
	if f.Blocked != "" {
		return condition(v1alpha1.QuotaReclaiming, true, v1alpha1.ReasonBlockedByDisruptionBudget,
			fmt.Sprintf("%s wanted within the guarantee, but %s", wanted, f.Blocked))
	}
	return condition(v1alpha1.QuotaReclaiming, true, v1alpha1.ReasonWaitingForLent,
		fmt.Sprintf("%s wanted within the guarantee; borrowed pods of others make room", wanted))
}

// list writes amounts for people, such as memory 10Gi, gpus 2.
func list(amounts Amounts) string {
	var parts []string
	for _, name := range amounts.Names() {
		if amounts[name] > 0 {
			parts = append(parts, name+" "+Format(name, amounts[name]))
		}
	}
	return strings.Join(parts, ", ")
}
