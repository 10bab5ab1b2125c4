// SPDX-License-Identifier: Apache-2.0

// Package cgroups keeps the memory limits that NVIDIA's driver holds by cgroup: it finds out whether the driver can, gives it
// the limits of a container before that starts, follows changes, and takes back what is guaranteed before a cgroup goes. It
// never writes the kernel's files; the driver does.
//
// Each limit is recorded before the driver is given it, so that after a kill at any point the next agent knows which cgroups
// may have one.
package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// Hardware is the NVML door.
type Hardware interface {
	SetMemoryLimits(ctx context.Context, gpuUUID, cgroup string, soft, hard uint64) error
	MemoryLimits(ctx context.Context, gpuUUID, cgroup string) (nvml.MemoryLimits, error)
}

// Records is the checkpoint.
type Records interface {
	LockLimits() (unlock func(), err error)
	Limits() (checkpoint.Limits, error)
	SaveLimits(l checkpoint.Limits) error
	Claims() (checkpoint.Claims, error)
	Published() (checkpoint.Published, error)
}

// Shares reads the limits of shares as they are now.
type Shares interface {
	Words(claimUID string, index int) (limits.Words, error)
}

// Options are what a Keeper is made of.
type Options struct {
	// Root is where the node's cgroup v2 file system is mounted, Proc its procfs.
	Root, Proc string
	Hardware   Hardware
	Records    Records
	Shares     Shares
	Clock      clock.PassiveClock
	Log        logr.Logger
}

// Keeper keeps the limits. It is safe for concurrent use, also beside another agent's.
type Keeper struct {
	Options

	// mu guards what was found out.
	mu     sync.Mutex
	probes map[string]probed
	// sure is true once all recorded limits were given to the driver by this agent.
	sure bool
}

// probed is a finding and its time. It counts for the driver that it was made with.
type probed struct {
	memlimits.Probe
	driver string
	at     time.Time
}

// New makes a keeper. Nothing is looked at yet.
func New(options Options) *Keeper {
	return &Keeper{Options: options, probes: map[string]probed{}}
}

// ErrCgroup says that the cgroup of a process cannot be used.
var ErrCgroup = errors.New("finding the container's cgroup failed")

// cgroupOf is the cgroup of a process, below the root, and the number of its directory.
func (k *Keeper) cgroupOf(pid int) (path string, inode uint64, err error) {
	file := filepath.Join(k.Proc, strconv.Itoa(pid), "cgroup")
	data, err := os.ReadFile(file)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrCgroup, err)
	}
	for line := range strings.Lines(string(data)) {
		below, v2 := strings.CutPrefix(strings.TrimRight(line, "\n"), "0::")
		switch {
		case !v2:
			continue
		case strings.HasPrefix(below, "/.."):
			return "", 0, fmt.Errorf("%w: the agent sees %q of process %d: it must run in the node's cgroup namespace", ErrCgroup, below, pid)
		case below == "/" || filepath.Clean(below) != below || !filepath.IsAbs(below):
			return "", 0, fmt.Errorf("%w: process %d is in %q, which is no container's cgroup", ErrCgroup, pid, below)
		}
		inode, there := k.inode(below)
		if !there {
			return "", 0, fmt.Errorf("%w: there is no %s", ErrCgroup, k.path(below))
		}
		return below, inode, nil
	}
	return "", 0, fmt.Errorf("%w: %s names no cgroup v2", ErrCgroup, file)
}

// path is a cgroup's path in the file system.
func (k *Keeper) path(cgroup string) string { return filepath.Join(k.Root, cgroup) }

// inode is the number of a cgroup's directory; false where it is not there.
func (k *Keeper) inode(cgroup string) (uint64, bool) {
	info, err := os.Stat(k.path(cgroup))
	if err != nil || !info.IsDir() {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Ino, true
}

// same is true where the cgroup is still the one that had the number.
func (k *Keeper) same(cgroup string, inode uint64) bool {
	now, there := k.inode(cgroup)
	return there && now == inode
}
