// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"path/filepath"
)

// WatchedFile is the name of the record of what is known of containers with shares in the state directory.
const WatchedFile = "watched.json"

// Watched is the record of what was seen of containers with shares and cannot be seen again: a process can leave the mounts
// behind that its container was started with, and a limit that was lowered is not written anywhere any more. Without it
// fewer violations are found until containers start again; only the active agent writes it.
type Watched struct {
	Version int `json:"version"`
	// Containers are those whose shares were seen.
	Containers []WatchedContainer `json:"containers,omitempty"`
	// Limits are limits that were in force and are above those in force now, in bytes, by what they were in force for.
	Limits map[string]uint64 `json:"limits,omitempty"`
}

// WatchedContainer is a container with the shares that it was started with.
type WatchedContainer struct {
	// Pod is the pod's UID, Name the container's cgroup below the pod's.
	Pod    string         `json:"pod"`
	Name   string         `json:"name"`
	Shares []WatchedShare `json:"shares"`
}

// WatchedShare names a share.
type WatchedShare struct {
	ClaimUID string `json:"claimUID"`
	Index    int    `json:"index"`
}

// Watched reads the record of containers; before the first one is written it is empty.
func (s *Store) Watched() (Watched, error) {
	w := Watched{Version: Version}
	if _, err := read(filepath.Join(s.dir, WatchedFile), &w); err != nil {
		return Watched{Version: Version}, err
	}
	return w, nil
}

// SaveWatched replaces the record of containers.
func (s *Store) SaveWatched(w Watched) error {
	w.Version = Version
	return replace(filepath.Join(s.dir, WatchedFile), w)
}
