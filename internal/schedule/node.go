// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Schedule is what a pool says about time.
type Schedule struct {
	// Windows are in the order in which they count.
	Windows []Window
	// Zone is where the clocks hang.
	Zone *time.Location
	// Jitter is the time over which the nodes of the pool change one after the other.
	Jitter time.Duration
}

// NodeState is which window is open for a node.
type NodeState struct {
	State
	// Prepare is true where the change to Next is so near that the node has to get ready for it.
	Prepare bool
	// Again is when the answer will be another one; zero: never.
	Again time.Time
}

// At says which window counts on a node. Every node lags behind the clock by a time of its own, always the same, so that
// the nodes change in turn and each window is as long as it is written.
func (s Schedule) At(node string, now time.Time) NodeState {
	lag := Lag(node, s.Jitter)
	state := NodeState{State: Active(s.Windows, s.Zone, now.Add(-lag))}
	if !state.Since.IsZero() {
		state.Since = state.Since.Add(lag)
	}
	if state.Until.IsZero() {
		return state
	}
	state.Until = state.Until.Add(lag)
	state.Again = state.Until
	lead := s.lead(state.State)
	if ready := state.Until.Add(-lead); now.Before(ready) {
		state.Again = ready
	} else {
		state.Prepare = lead > 0
	}
	return state
}

// lead is how long before its change a state is to be made ready for.
func (s Schedule) lead(state State) time.Duration {
	switch {
	case state.Next != None:
		return s.Windows[state.Next].Lead
	case state.Active != None:
		return s.Windows[state.Active].Lead
	default:
		return 0
	}
}

// Lag is a node's share of a jitter, at least nothing and less than all of it. It follows from the name.
func Lag(node string, jitter time.Duration) time.Duration {
	if jitter <= 0 {
		return 0
	}
	// Nodes are numbered: a hash that spreads what the last letters change over all bits.
	sum := sha256.Sum256([]byte(node))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(jitter))
}
