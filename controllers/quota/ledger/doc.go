// SPDX-License-Identifier: Apache-2.0

// Package ledger writes GPULedgers. Every write is a compare and swap of the whole object; what arrives for a ledger
// while it is being written goes into the next write together. That makes one writer fast and two writers correct.
package ledger
