// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"slices"
	"time"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// Idle is a MIG instance that outlived its claim, for the next one that is given the same placement.
type Idle struct {
	// GPU is the UUID of the physical GPU.
	GPU       string    `json:"gpu"`
	Placement Placement `json:"placement"`
	// Until is when it has to go.
	Until time.Time `json:"until"`
}

// IdleAt is true where an instance is kept for a next claim.
func (c Claims) IdleAt(uuid string, p gpu.Placement) bool {
	return slices.ContainsFunc(c.Idle, func(i Idle) bool { return i.GPU == uuid && i.Placement.GPU() == p })
}

// TakeIdle removes from the record, and returns, the kept instances that are in the way of a placement or at it.
func (c *Claims) TakeIdle(uuid string, p Placement) []Idle {
	var taken, rest []Idle
	for _, i := range c.Idle {
		if i.GPU == uuid && i.Placement.Overlaps(p) {
			taken = append(taken, i)
		} else {
			rest = append(rest, i)
		}
	}
	c.Idle = rest
	return taken
}
