// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"path/filepath"
)

// LimitsFile is the name of the record of the driver's memory limits in the state directory.
const LimitsFile = "limits.json"

// Limits is the record of the memory limits that the driver was given for cgroups. It is a file of its own with a lock of
// its own: a container that starts does not wait for claims that are being prepared.
type Limits struct {
	Version int `json:"version"`
	// Containers are those that were allowed to start with shares that the driver holds.
	Containers []Container `json:"containers"`
	// Set are the limits that cgroups have, or may have: a limit is recorded before the driver is given it.
	Set []SetLimit `json:"set,omitempty"`
	// FellBack says of claims, by UID, why the driver does not hold them although it should.
	FellBack map[string]string `json:"fellBack,omitempty"`
	// Told are the UIDs of the claims whose pods were told that the library alone holds them.
	Told []string `json:"told,omitempty"`
}

// Container is a container that was allowed to start.
type Container struct {
	// Cgroup is its path below the root of the cgroup file system, Inode that of its directory.
	Cgroup string `json:"cgroup"`
	Inode  uint64 `json:"inode"`
	// Shares are those that it was given.
	Shares []ShareRef `json:"shares"`
}

// ShareRef names a share.
type ShareRef struct {
	ClaimUID string `json:"claimUID"`
	Result   int    `json:"result"`
}

// SetLimit is what a cgroup is limited to on a GPU, in bytes.
type SetLimit struct {
	GPU    string `json:"gpu"`
	Cgroup string `json:"cgroup"`
	Inode  uint64 `json:"inode"`
	Soft   uint64 `json:"soft"`
	Hard   uint64 `json:"hard"`
	// Pending is true until the driver has taken it.
	Pending bool `json:"pending,omitempty"`
}

// LockLimits waits for the lock of the record of limits. Who wants both locks takes the other one first.
func (s *Store) LockLimits() (unlock func(), err error) { return s.lock(&s.limitsMu, limitsLock) }

// Limits reads the record of limits; before the first one is written it is empty.
func (s *Store) Limits() (Limits, error) {
	path := filepath.Join(s.dir, LimitsFile)
	l := Limits{Version: Version}
	written, err := read(path, &l)
	if err != nil {
		return Limits{}, err
	}
	if written && l.Containers == nil {
		return Limits{}, fmt.Errorf("%s: %w: it has no list of containers", path, ErrUnreadable)
	}
	return l, nil
}

// SaveLimits replaces the record of limits. Once it returns, the record survives a crash of the node.
func (s *Store) SaveLimits(l Limits) error {
	l.Version = Version
	if l.Containers == nil {
		l.Containers = []Container{} // written, so that a record without the list is known to be damaged
	}
	return replace(filepath.Join(s.dir, LimitsFile), l)
}
