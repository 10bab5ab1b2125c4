// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// PodQuotaReserved is the condition of a pod that waits, or has waited, for its namespace's GPUQuota: False while its
// scheduling gate keeps it waiting, True since it was let go. A pod that finds room at once does not carry it. The
// message begins with the pod's position among the waiting pods of its namespace.
const PodQuotaReserved = "sluice.dev/QuotaReserved"

// Reasons of the condition PodQuotaReserved beside those of refusals, such as AboveHard and NothingToBorrow.
const (
	// ReasonBehindOthers: pods before it wait for room.
	ReasonBehindOthers = "BehindOthers"
	// ReasonNotInLine: it cannot be placed yet for another reason than the quota, and keeps nobody waiting.
	ReasonNotInLine = "NotInLine"
	// ReasonReleased: it was let go. Whether its devices fit is decided once more when they are allocated.
	ReasonReleased = "Released"
)
