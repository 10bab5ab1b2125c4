// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/violation"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/procs"
)

const (
	// patience is how long a look waits for NVML. A GPU that does not answer is not looked at; the others are.
	patience = 2 * time.Second
	// ledgerTime is what may be spent on finding the processes of one ledger.
	ledgerTime = 20 * time.Millisecond
)

// node is what a look is about.
type node struct {
	shares map[violation.Share]share
	// order is that in which they are looked at.
	order []violation.Share
	// later are pods that were given a claim after it was prepared, as far as somebody has asked for them.
	later map[string][]checkpoint.Pod
	// filesystem is the device number of the shares' file system.
	filesystem uint64
	// ledgers are what their ledgers say, where they can be read.
	ledgers map[violation.Share]limits.Ledger
}

// share is one that is held inside its processes.
type share struct {
	id     violation.Share
	claim  checkpoint.Claim
	result checkpoint.Result
	// device is the UUID of the GPU or MIG instance, pool the GPUPool that it is of.
	device, pool string
	action       v1alpha1.ViolationAction
	words        limits.Words
}

// ofPod are the shares of the claims that a pod is known to have.
func (n *node) ofPod(uid string) []violation.Share {
	var found []violation.Share
	for _, id := range n.order {
		if has(n.shares[id].claim.Pods, uid) || has(n.later[id.ClaimUID], uid) {
			found = append(found, id)
		}
	}
	return found
}

// on are those of some shares that are of a device.
func (n *node) on(shares []violation.Share, device string) []violation.Share {
	var found []violation.Share
	for _, id := range shares {
		if s, there := n.shares[id]; there && s.device == device {
			found = append(found, id)
		}
	}
	return found
}

// has is true where a claim has a share.
func (n *node) has(claimUID string) bool {
	return slices.ContainsFunc(n.order, func(id violation.Share) bool { return id.ClaimUID == claimUID })
}

// node reads which shares there are.
func (w *Watcher) node() (*node, error) {
	recorded, err := w.Records.Claims()
	if err != nil {
		return nil, fmt.Errorf("reading the prepared claims: %w", err)
	}
	published, err := w.Records.Published()
	if err != nil {
		return nil, fmt.Errorf("reading the published devices: %w", err)
	}
	n := &node{shares: map[violation.Share]share{}, later: map[string][]checkpoint.Pod{}, ledgers: map[violation.Share]limits.Ledger{}}
	var failed error
	for _, claim := range recorded.Sorted() {
		for _, r := range claim.Results {
			if claim.State != checkpoint.Prepared || !r.Enforced || r.Admin {
				continue
			}
			s := share{
				id: violation.Share{ClaimUID: claim.UID, Index: r.Index}, claim: claim, result: r, device: r.GPU, action: v1alpha1.ViolationReport,
			}
			if r.Instance != nil {
				s.device = r.Instance.UUID
			}
			if offered := published.ByUUID(r.GPU); offered != nil {
				s.pool, s.action = offered.Form.Pool, cmp.Or(offered.Form.OnViolation, s.action)
			}
			s.words, err = w.Shares.Words(claim.UID, r.Index)
			if errors.Is(err, limits.ErrNoShare) {
				continue // it is being released
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("reading the limits of a share: %w", err))
				continue
			}
			n.shares[s.id] = s
			n.order = append(n.order, s.id)
		}
	}
	for uid, asked := range w.pods {
		n.later[uid] = asked.pods
	}
	var stat unix.Stat_t
	if err := unix.Stat(w.Shares.Root(), &stat); err != nil {
		return nil, fmt.Errorf("looking at the share directory: %w", err)
	}
	n.filesystem = stat.Dev
	return n, failed
}

// look puts together what is to be judged. NVML is asked first and the ledgers after it: a process registers before it has
// a context, so one that NVML lists and that still lives is in its ledger.
func (w *Watcher) look(ctx context.Context, n *node) (violation.Look, error) {
	l := violation.Look{Blind: map[string]string{}}
	gpus := map[string]string{}
	for _, id := range n.order {
		s := n.shares[id]
		gpus[s.device] = s.result.GPU
		l.Grants = append(l.Grants, violation.Grant{Share: id, Device: s.device, Limit: s.words.MemoryLimit, Overhead: s.words.Overhead})
	}
	answers := w.asker.ask(ctx, w.Hardware, gpus)
	failed := w.finder.scan(n)
	for device, a := range answers {
		if a.err != nil {
			l.Blind[device] = a.err.Error()
			continue
		}
		found := w.processes(ctx, n, device, a.figures)
		if len(found) == 0 && len(a.figures) > 0 {
			l.Blind[device] = "the agent does not see the processes that NVML lists; its pod needs hostPID"
		}
		l.Processes = append(l.Processes, found...)
	}
	return w.register(n, l), failed
}

// processes are those on a device that are to be seen.
func (w *Watcher) processes(ctx context.Context, n *node, device string, figures []nvml.Figure) []violation.Process {
	var found []violation.Process
	for _, f := range figures {
		start, err := procs.Start(w.Proc, f.PID)
		if err != nil {
			continue // it has ended
		}
		p := violation.Process{
			ID: violation.PID{PID: f.PID, Start: start}, Device: device, Name: procs.Name(w.Proc, f.PID), Bytes: f.Bytes, Figure: f.Known,
		}
		p.Shares, p.Pod = w.finder.of(n, f.PID, device)
		if len(p.Shares) == 0 && p.Pod != "" && w.meet(ctx, n, p.Pod, device) {
			p.Shares, p.Pod = w.finder.of(n, f.PID, device)
			w.finder.keep(f.PID, p.Shares)
		}
		found = append(found, p)
	}
	return found
}

// register says which processes the library knows, and adds those that it knows to hold something and NVML does not list. Those
// that have ended meanwhile are left out.
func (w *Watcher) register(n *node, l violation.Look) violation.Look {
	known, unclear := w.ledgers(n)
	listed := map[string]map[int]bool{}
	var living []violation.Process
	for _, p := range l.Processes {
		if listed[p.Device] == nil {
			listed[p.Device] = map[int]bool{}
		}
		listed[p.Device][p.ID.PID] = true
		for _, id := range p.Shares {
			_, registered := known[id][p.ID.PID]
			p.Registered = p.Registered || registered
			p.Unclear = p.Unclear || unclear[id]
		}
		if start, err := procs.Start(w.Proc, p.ID.PID); err == nil && start == p.ID.Start {
			living = append(living, p)
		}
	}
	for _, id := range n.order {
		s := n.shares[id]
		if _, blind := l.Blind[s.device]; !blind {
			living = append(living, w.unlisted(s, known[id], listed[s.device])...)
		}
	}
	slices.SortStableFunc(living, func(a, b violation.Process) int { return a.ID.PID - b.ID.PID })
	l.Processes = living
	return l
}

// ledgers reads who is in each ledger. It is unclear where not everybody could be found.
func (w *Watcher) ledgers(n *node) (known map[violation.Share]map[int]limits.Holder, unclear map[violation.Share]bool) {
	known, unclear = map[violation.Share]map[int]limits.Holder{}, map[violation.Share]bool{}
	for _, id := range n.order {
		ledger, err := w.Shares.Ledger(id.ClaimUID, id.Index, ledgerTime)
		// A ledger that its tenant has cut short knows nobody.
		unclear[id] = !ledger.All && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF)
		if err == nil {
			n.ledgers[id] = ledger
		}
		known[id] = map[int]limits.Holder{}
		for _, h := range ledger.Holders {
			known[id][h.PID] = h
		}
	}
	return known, unclear
}

// unlisted are the processes of a share that hold something by their ledger, and that NVML does not list.
func (w *Watcher) unlisted(s share, known map[int]limits.Holder, listed map[int]bool) []violation.Process {
	var found []violation.Process
	for pid, h := range known {
		start, err := procs.Start(w.Proc, pid)
		if err != nil || listed[pid] || h.Held < max(s.words.Context, 1) {
			continue
		}
		found = append(found, violation.Process{
			ID: violation.PID{PID: pid, Start: start}, Device: s.device, Name: procs.Name(w.Proc, pid), Shares: []violation.Share{s.id}, Registered: true,
		})
	}
	return found
}
