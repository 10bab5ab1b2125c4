// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/violation"
	"github.com/sluice-gpu/sluice/node-agent/procs"
)

// reasonKilled is the reason of the event that tells of processes that were killed.
const reasonKilled = "ProcessesKilled"

// quiet is how long a share that comes and goes over its limit is not told of again. The status has it all the same.
const quiet = 5 * time.Minute

// telling is something that a share's pods are told of.
type telling struct {
	share  violation.Share
	reason string
}

// act kills where the pool says so, and says whom.
func (w *Watcher) act(n *node, found violation.Findings) map[violation.Share][]string {
	killed := map[violation.Share][]string{}
	for _, f := range found.Violations {
		if n.shares[f.Share].action != v1alpha1.ViolationKill {
			continue
		}
		for _, p := range f.Offenders {
			err := w.Killer.Kill(p.ID.PID, func() bool { return w.still(n, p) })
			if errors.Is(err, os.ErrProcessDone) {
				continue
			}
			if err != nil {
				w.Log.Error(err, "A process that violates its share's limit could not be killed", "process", p.Name, "claim", f.Share.ClaimUID)
				continue
			}
			killed[f.Share] = append(killed[f.Share], p.Name)
			w.Metrics.kill()
			w.Log.Info("Killed a process", "process", p.Name, "claim", f.Share.ClaimUID, "result", f.Share.Index, "reason", f.Reason)
		}
	}
	return killed
}

// still is true where a process is the one that was seen, and has the shares that it had.
func (w *Watcher) still(n *node, p violation.Process) bool {
	start, err := procs.Start(w.Proc, p.ID.PID)
	if err != nil || start != p.ID.Start {
		return false
	}
	shares, _ := w.finder.of(n, p.ID.PID, p.Device)
	return slices.Equal(shares, p.Shares)
}

// Signals kills by signal.
type Signals struct {
	// Proc is the node's procfs.
	Proc string
}

// Kill opens the process before it is looked at again, so that what is killed is what was looked at, and nothing that has
// taken its PID meanwhile.
func (s Signals) Kill(pid int, still func() bool) error {
	// Numbers of another PID namespace would be somebody else's here.
	if own, err := os.Readlink(filepath.Join(s.Proc, "self")); err != nil || own != strconv.Itoa(os.Getpid()) {
		return errors.Join(fmt.Errorf("%s is not of this process's PID namespace", s.Proc), err)
	}
	if pid <= 1 || pid == os.Getpid() {
		return fmt.Errorf("process %d is not one to be killed", pid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !still() {
		return os.ErrProcessDone
	}
	err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}

// tell writes events: one when a violation is found, one when it is over, and one for whoever was killed.
func (w *Watcher) tell(ctx context.Context, n *node, now map[violation.Share]v1alpha1.Violation, killed map[violation.Share][]string) {
	at := w.Clock.Now()
	for t, last := range w.told {
		if _, there := now[t.share]; !there && at.Sub(last) >= quiet {
			delete(w.told, t)
		}
	}
	for id, v := range now {
		t := telling{share: id, reason: v.Reason}
		if before, told := w.said[id]; (!told || before.Reason != v.Reason) && w.told[t].IsZero() {
			w.told[t] = at
			w.Metrics.tell(v.Reason)
			w.Log.Info("A share is not kept to", "claim", v.Claim, "uid", id.ClaimUID, "result", id.Index, "reason", v.Reason, "pods", v.Pods,
				"held", v.Held.String(), "limit", v.Limit.String(), "processes", v.Processes)
			w.tellPods(ctx, n, id, v, corev1.EventTypeWarning, v.Reason, found(n.shares[id], v))
		}
		if names := killed[id]; len(names) > 0 {
			w.tellPods(ctx, n, id, v, corev1.EventTypeWarning, reasonKilled, "killed as the pool says: "+list(names))
		}
	}
	for id, v := range w.said {
		over, since := telling{share: id, reason: v1alpha1.ReasonWithinLimits}, w.told[telling{share: id, reason: v.Reason}]
		if _, there := now[id]; there || since.IsZero() || w.told[over].After(since) {
			continue
		}
		w.told[over] = at
		w.Log.Info("A share is kept to again", "claim", v.Claim, "uid", id.ClaimUID, "result", id.Index)
		if _, there := n.shares[id]; there {
			w.tellPods(ctx, n, id, v, corev1.EventTypeNormal, v1alpha1.ReasonWithinLimits, "the share's processes are held by their limit again")
		}
	}
}

// tellPods writes an event on each pod of a violation. One that cannot be written is not tried again: the status says the same.
func (w *Watcher) tellPods(ctx context.Context, n *node, id violation.Share, v v1alpha1.Violation, eventType, reason, message string) {
	claim := n.shares[id].claim
	pods := claim.Pods
	if asked, ok := w.pods[claim.UID]; ok {
		pods = asked.pods
	}
	for _, pod := range pods {
		if !slices.Contains(v.Pods, claim.Namespace+"/"+pod.Name) {
			continue
		}
		if err := w.Teller.Tell(ctx, claim.Namespace, pod, eventType, reason, message); err != nil {
			w.Log.Info("A pod is not told about its share", "pod", claim.Namespace+"/"+pod.Name, "err", err.Error())
		}
	}
}

// found is what a pod is told when a violation is found.
func found(s share, v v1alpha1.Violation) string {
	var text strings.Builder
	switch v.Reason {
	case v1alpha1.ReasonOverLimit:
		fmt.Fprintf(&text, "the processes of the share hold %s of %s together, more than its limit of %s", v.Held, s.result.Device, v.Limit)
		if len(v.Processes) > 0 {
			fmt.Fprintf(&text, "; Sluice's library does not hold %s", list(v.Processes))
		}
	default:
		fmt.Fprintf(&text, "%s is used past Sluice's library, which holds its users to their limits, by %s", s.result.Device, list(v.Processes))
	}
	switch v.Action {
	case v1alpha1.ViolationEvict:
		text.WriteString("; the pool says that the pod is evicted")
	case v1alpha1.ViolationKill:
		text.WriteString("; the pool says that the processes are killed")
	default:
	}
	return text.String()
}

// list are the first of some names, and how many more there are.
func list(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
