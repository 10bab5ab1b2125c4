// SPDX-License-Identifier: Apache-2.0

// Package quota decides what the tenants of a namespace may hold: what an allocation costs, whether it fits, what a ledger
// remembers of it, who waits for what, and who gives back what was borrowed.
//
// A ledger belongs to one domain: a cohort, or a namespace outside any. Within a cohort the quotas that count the same
// pools form a group. For each amount that any quota of the group names in guaranteed:
//
//   - together the group holds at most the sum of its guaranteed amounts, so what one borrows is what others leave unused;
//   - a claim with which its namespace stays within its guarantee waits at most for what was lent to come back;
//   - any other claim borrows. It gets only what nobody waits for within a guarantee.
//
// An amount that nobody of the group names in guaranteed is bounded by hard only.
package quota
