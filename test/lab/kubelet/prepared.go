// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

const checkpointVersion = 1

// preparedDevice is one device that a driver prepared.
type preparedDevice struct {
	Driver   string   `json:"driver"`
	Pool     string   `json:"pool"`
	Device   string   `json:"device"`
	ShareID  string   `json:"shareID,omitempty"`
	Requests []string `json:"requests,omitempty"`
	CDI      []string `json:"cdiDevices,omitempty"`
}

// preparedClaim is a claim that drivers were asked, or are about to be asked, to prepare.
type preparedClaim struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	UID       types.UID        `json:"uid"`
	Drivers   []string         `json:"drivers"`
	Pods      []types.UID      `json:"pods"`
	Done      bool             `json:"done"`
	Devices   []preparedDevice `json:"devices,omitempty"`
}

func (c preparedClaim) clone() preparedClaim {
	c.Drivers, c.Pods, c.Devices = slices.Clone(c.Drivers), slices.Clone(c.Pods), slices.Clone(c.Devices)
	return c
}

// checkpoint remembers prepared claims across restarts. A claim is written before its driver is first called, and
// removed after its driver has undone it: what was ever asked for is never forgotten.
type checkpoint struct {
	path string

	mu     sync.Mutex
	claims map[types.UID]preparedClaim
	// busy holds the claims that somebody works on.
	busy map[types.UID]bool
}

type checkpointFile struct {
	Version int             `json:"version"`
	Claims  []preparedClaim `json:"claims"`
}

// openCheckpoint reads a checkpoint; a missing file is an empty one, an unreadable one an error.
func openCheckpoint(path string) (*checkpoint, error) {
	c := &checkpoint{path: path, claims: map[types.UID]preparedClaim{}, busy: map[types.UID]bool{}}
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoint: %w", err)
	}
	var file checkpointFile
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("reading the checkpoint %s: %w", path, err)
	}
	if file.Version != checkpointVersion {
		return nil, fmt.Errorf("the checkpoint %s has version %d, want %d", path, file.Version, checkpointVersion)
	}
	for _, claim := range file.Claims {
		c.claims[claim.UID] = claim
	}
	return c, nil
}

// get returns a copy of a claim's entry.
func (c *checkpoint) get(uid types.UID) (preparedClaim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim, ok := c.claims[uid]
	return claim.clone(), ok
}

// all returns copies of all entries, by UID.
func (c *checkpoint) all() []preparedClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sorted()
}

func (c *checkpoint) sorted() []preparedClaim {
	list := make([]preparedClaim, 0, len(c.claims))
	for _, claim := range c.claims {
		list = append(list, claim.clone())
	}
	slices.SortFunc(list, func(a, b preparedClaim) int {
		switch {
		case a.UID < b.UID:
			return -1
		case a.UID > b.UID:
			return 1
		}
		return 0
	})
	return list
}

// put stores entries and writes the file.
func (c *checkpoint) put(claims ...preparedClaim) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range claims {
		c.claims[claim.UID] = claim.clone()
	}
	return c.write()
}

// remove drops entries and writes the file.
func (c *checkpoint) remove(uids ...types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range uids {
		delete(c.claims, uid)
	}
	return c.write()
}

func (c *checkpoint) write() error {
	return writeJSON(c.path, checkpointFile{Version: checkpointVersion, Claims: c.sorted()})
}

// acquire reserves claims for one worker, all or none.
func (c *checkpoint) acquire(uids []types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range uids {
		if c.busy[uid] {
			return false
		}
	}
	for _, uid := range uids {
		c.busy[uid] = true
	}
	return true
}

func (c *checkpoint) release(uids []types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range uids {
		delete(c.busy, uid)
	}
}

// ofPod lists the claims that a pod uses.
func (c *checkpoint) ofPod(pod types.UID) []preparedClaim {
	return slices.DeleteFunc(c.all(), func(claim preparedClaim) bool { return !slices.Contains(claim.Pods, pod) })
}

// writeJSON replaces a file whole.
func writeJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.WriteFile(path+".new", append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return nil
}
