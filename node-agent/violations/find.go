// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-gpu/sluice/internal/violation"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/procs"
)

const (
	// fresh bounds how many processes that nobody has looked at yet are looked at each time. The rest have their turn at
	// the next look; a process that uses a GPU is looked at in any case.
	fresh = 4096
	// settled is at how many looks a new process, or the mounts of a new container, are looked at: the first can come
	// while its mounts are being made.
	settled = 2
)

// finder finds out which shares a process has: those that it has mounted, and those that its container was seen to have. A
// process can leave its mounts behind, in a user namespace or a root directory of its own; it cannot leave its cgroup.
type finder struct {
	proc string
	// known are the shares of each container.
	known map[procs.Container]*container
	// seen are the processes that were there at the last look.
	seen map[int]process
}

// container is what is known of one.
type container struct {
	shares []violation.Share
	looks  int
}

// process is what is known of one, by its PID. One that has the PID of another that has just ended is taken for it here, and
// only here.
type process struct {
	container procs.Container
	looks     int
}

func newFinder(proc string, record checkpoint.Watched) *finder {
	f := &finder{proc: proc, known: map[procs.Container]*container{}, seen: map[int]process{}}
	for _, c := range record.Containers {
		known := &container{}
		for _, s := range c.Shares {
			known.shares = append(known.shares, violation.Share{ClaimUID: s.ClaimUID, Index: s.Index})
		}
		f.known[procs.Container{Pod: c.Pod, Name: c.Name}] = known
	}
	return f
}

// record is what is worth remembering.
func (f *finder) record() []checkpoint.WatchedContainer {
	var list []checkpoint.WatchedContainer
	for c, known := range f.known {
		if len(known.shares) == 0 {
			continue
		}
		entry := checkpoint.WatchedContainer{Pod: c.Pod, Name: c.Name}
		for _, s := range known.shares {
			entry.Shares = append(entry.Shares, checkpoint.WatchedShare{ClaimUID: s.ClaimUID, Index: s.Index})
		}
		list = append(list, entry)
	}
	slices.SortFunc(list, func(a, b checkpoint.WatchedContainer) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// scan looks at the processes of the node that are new, and learns which shares their containers have.
func (f *finder) scan(n *node) error {
	pids, err := f.pids()
	if err != nil {
		return err
	}
	now, looked := make(map[int]process, len(pids)), map[procs.Container]bool{}
	budget := fresh
	for _, pid := range pids {
		p := f.seen[pid]
		if p.looks < settled && budget > 0 {
			budget--
			p = process{looks: p.looks + 1}
			if c, ok := procs.ContainerOf(f.proc, pid); ok {
				p.container = c
				f.learn(n, pid, c, looked)
			}
		}
		now[pid] = p
	}
	f.seen = now
	living := map[procs.Container]bool{}
	for _, p := range now {
		living[p.container] = true
	}
	// What nobody has looked at may be of any container.
	if budget > 0 {
		maps.DeleteFunc(f.known, func(c procs.Container, _ *container) bool { return !living[c] })
	}
	return nil
}

// learn looks at the mounts of a container by one of its processes.
func (f *finder) learn(n *node, pid int, c procs.Container, looked map[procs.Container]bool) {
	known := f.known[c]
	if known == nil {
		known = &container{}
		f.known[c] = known
	}
	if known.looks >= settled {
		return
	}
	if !looked[c] {
		looked[c] = true
		known.looks++
	}
	known.add(f.mounted(n, pid))
}

func (c *container) add(shares []violation.Share) {
	for _, s := range shares {
		if !slices.Contains(c.shares, s) {
			c.shares = append(c.shares, s)
		}
	}
}

// pids are those of all processes.
func (f *finder) pids() ([]int, error) {
	dir, err := os.Open(f.proc)
	if err != nil {
		return nil, fmt.Errorf("listing the node's processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing the node's processes: %w", err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// mounted are the shares that a process has mounted. What they are called in its file system does not matter.
func (f *finder) mounted(n *node, pid int) []violation.Share {
	roots, err := procs.Mounted(f.proc, pid, n.filesystem)
	if err != nil {
		return nil // it has ended
	}
	var found []violation.Share
	for _, root := range roots {
		parts := strings.Split(root, "/")
		if len(parts) < 3 || !isShareFile(parts[len(parts)-1]) {
			continue
		}
		index, err := strconv.Atoi(parts[len(parts)-2])
		if err != nil {
			continue
		}
		s := violation.Share{ClaimUID: parts[len(parts)-3], Index: index}
		if _, there := n.shares[s]; there && !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found
}

func isShareFile(name string) bool {
	return name == limits.LimitsFile || name == limits.UsageFile || name == limits.BellFile
}

// keep remembers what the container of a process has, where the API server had to say it: it may not answer the next time.
func (f *finder) keep(pid int, shares []violation.Share) {
	if c, ok := procs.ContainerOf(f.proc, pid); ok && f.known[c] != nil {
		f.known[c].add(shares)
	}
}

// of are the shares of a device that a process has, and the pod that it is of, as far as that is known.
func (f *finder) of(n *node, pid int, device string) (shares []violation.Share, pod string) {
	found := f.mounted(n, pid)
	if c, ok := procs.ContainerOf(f.proc, pid); ok {
		pod = c.Pod
		known := f.known[c]
		if known == nil {
			known = &container{}
			f.known[c] = known
		}
		known.add(found)
		found = n.on(known.shares, device)
		if len(found) == 0 {
			// Nobody has seen its container with a share of the device, which the container can have left behind before it
			// was looked at, and others not: it is taken to have what its pod has.
			found = n.ofPod(pod)
		}
	}
	shares = n.on(found, device)
	slices.SortFunc(shares, func(a, b violation.Share) int {
		return cmp.Or(cmp.Compare(a.ClaimUID, b.ClaimUID), cmp.Compare(a.Index, b.Index))
	})
	return shares, pod
}
