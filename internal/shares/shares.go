// SPDX-License-Identifier: Apache-2.0

// Package shares holds the figures of a share that is held inside its processes, for the manager, which refuses what is too
// small, and for the agent, which writes them down.
package shares

import "github.com/sluice-gpu/sluice/api/v1alpha1"

const (
	// ContextBytes is what a process's CUDA context is taken to cost on a device until it has been measured there.
	ContextBytes = 640 << 20

	// MinMemoryBytes is the smallest share that is of any use: one context, and something to work with.
	MinMemoryBytes = ContextBytes + 64<<20
)

// Held is true where the library is to hold the memory of shares inside their processes.
func Held(mode v1alpha1.SharingMode) bool {
	return mode == v1alpha1.SharingSoftware || mode == v1alpha1.SharingMPS
}
