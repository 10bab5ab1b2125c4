// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"path/filepath"
)

// ContextsFile is the name of the record of measured contexts in the state directory.
const ContextsFile = "contexts.json"

// Contexts is the record of what CUDA contexts were measured to cost. Without it a safe figure serves, so nobody depends on
// it; only the active agent writes it.
type Contexts struct {
	Version int `json:"version"`
	// Figures hold at most one for each combination of the other fields.
	Figures []ContextFigure `json:"figures"`
}

// ContextFigure is what one context costs.
type ContextFigure struct {
	Product string `json:"product"`
	Driver  string `json:"driver"`
	// Profile is the MIG instance's; "" for a whole GPU.
	Profile string `json:"profile,omitempty"`
	// Mode is the sharing mode.
	Mode  string `json:"mode"`
	Bytes uint64 `json:"bytes"`
}

// Contexts reads the record of contexts; before the first one is written it is empty.
func (s *Store) Contexts() (Contexts, error) {
	path := filepath.Join(s.dir, ContextsFile)
	c := Contexts{Version: Version}
	written, err := read(path, &c)
	if err != nil {
		return Contexts{Version: Version}, err
	}
	if written && c.Figures == nil {
		return Contexts{Version: Version}, fmt.Errorf("%s: %w: it has no list of figures", path, ErrUnreadable)
	}
	return c, nil
}

// SaveContexts replaces the record of contexts. Once it returns, the record survives a crash of the node.
func (s *Store) SaveContexts(c Contexts) error {
	c.Version = Version
	if c.Figures == nil {
		c.Figures = []ContextFigure{} // written, so that a record without the list is known to be damaged
	}
	return replace(filepath.Join(s.dir, ContextsFile), c)
}
