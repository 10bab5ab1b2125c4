// SPDX-License-Identifier: Apache-2.0

// Package tenants gathers what the queue and reclaim decide from: the quotas of one ledger, what it counts, and the pods
// that have no node yet, with what they will cost at least.
package tenants
