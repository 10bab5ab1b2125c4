// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/claims"
	"github.com/sluice-gpu/sluice/node-agent/publish"
	"github.com/sluice-gpu/sluice/node-agent/report"
)

// errCreated ends a pass that made the GPUNode: its creation triggers the next one.
var errCreated = errors.New("the GPUNode was just created")

// plan is what a pass decided.
type plan struct {
	outcomes []publish.Outcome
	record   checkpoint.Published
	claims   checkpoint.Claims
	inUse    map[string]int
	// reorderIn is when the order may change next; 0 where it needs no change.
	reorderIn time.Duration
}

// record decides what is published and records it. The lock is held from reading who has which GPU until the record is
// written, so that no claim is prepared in a form that is just being given up.
func (a *Agent) record(w world) (plan, error) {
	unlock, err := a.Records.Lock()
	if err != nil {
		return plan{}, fmt.Errorf("locking the checkpoint: %w", err)
	}
	defer unlock()
	p := plan{}
	if p.claims, err = a.Records.Claims(); err != nil {
		return plan{}, fmt.Errorf("reading the prepared claims: %w", err)
	}
	before, err := a.Records.Published()
	if err != nil {
		return plan{}, fmt.Errorf("reading the published devices: %w", err)
	}
	a.rememberTimeSlices(before)
	p.inUse = p.claims.OnGPU()
	in := publish.Input{
		Look: w.look, Decisions: w.gpuNode.Decisions(), Undecided: w.undecided,
		Record: before, InUse: p.inUse, Held: p.held(), Troubles: a.memory.troubles, Foreign: w.foreign,
		Health: a.health(w, before), Remembered: a.memory.seen, Probes: w.probes,
	}
	if w.lost {
		in.Failed = w.failed
	}
	p.outcomes = publish.Plan(in)
	p.record = publish.Record(p.outcomes, before)
	a.order(w.now, before, &p)
	p.record.Version = before.Version
	if !equality.Semantic.DeepEqual(before, p.record) {
		if err := a.Records.SavePublished(p.record); err != nil {
			return plan{}, fmt.Errorf("recording what is to be published: %w", err)
		}
	}
	return p, nil
}

// order packs the GPUs where that is due: at once with a change that rewrites the slices anyway, else after a while.
func (a *Agent) order(now time.Time, before checkpoint.Published, p *plan) {
	packed := publish.Packed(p.record, p.inUse)
	if publish.SameOrder(packed, p.record) {
		return
	}
	since := now.Sub(a.memory.reordered)
	if publish.SameGPUs(before, p.record) && since < a.Intervals.Reorder {
		p.reorderIn = a.Intervals.Reorder - since
		return
	}
	p.record = packed
	a.memory.reordered = now
}

// publish asks for the slices where they are not as wanted, and says whether they are.
func (a *Agent) publish(ctx context.Context, w world, p plan) (settled bool, err error) {
	want := publish.Slices(p.record)
	a.mu.Lock()
	again := a.republish
	a.republish = false
	a.mu.Unlock()
	settled = publish.Settled(want, w.ours)
	a.Metrics.offered(len(p.record.GPUs))
	changed := a.memory.askedAt.IsZero() || !equality.Semantic.DeepEqual(a.memory.asked, want)
	due := !settled && w.now.Sub(a.memory.askedAt) >= a.Intervals.Republish
	if changed || again || due {
		if err := a.Publisher.Publish(ctx, want); err != nil {
			return false, fmt.Errorf("publishing: %w", err)
		}
		a.memory.asked, a.memory.askedAt = want, w.now
	}
	if settled {
		a.setPublishError("")
	}
	return settled, nil
}

// maintain cleans up where the look or the record shows something that no claim accounts for, and tells running shares of
// another compute policy.
func (a *Agent) maintain(ctx context.Context, w world, p plan) error {
	policies := claims.PolicyDiffers(p.claims, p.record)
	left := claims.Unfinished(p.claims, p.record, w.now) || len(claims.Orphans(w.look, p.claims, p.record)) > 0
	if !policies && (w.failed != "" || !left) {
		return nil
	}
	err := a.Preparer.Maintain(ctx)
	if policies {
		a.Arbiter.Refresh()
	}
	if err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	return nil
}

// sweep releases claims that are gone from the API and that kubelet does not release any more. A claim must be found
// gone twice, since one whose pod was deleted by force goes before its containers do.
func (a *Agent) sweep(ctx context.Context) error {
	now := a.Clock.Now()
	if now.Before(a.memory.sweepAt) {
		return nil
	}
	a.memory.sweepAt = now.Add(a.Intervals.Sweep)
	gone, err := a.Preparer.Gone(ctx)
	failed := []error{err}
	suspects := map[string]time.Time{}
	for _, uid := range gone {
		since, known := a.memory.suspects[uid]
		if !known {
			since = now
		}
		if now.Sub(since) >= a.Intervals.SweepAgain {
			a.Log.Info("Releasing a claim that is gone from the API", "uid", uid)
			err := a.Preparer.Unprepare(ctx, uid)
			if err == nil {
				continue
			}
			failed = append(failed, fmt.Errorf("releasing claim %s, which is gone from the API: %w", uid, err))
		}
		suspects[uid] = since
		a.memory.sweepAt = now.Add(a.Intervals.SweepAgain)
	}
	a.memory.suspects = suspects
	return errors.Join(failed...)
}

// report writes the status where it has changed.
func (a *Agent) report(ctx context.Context, w world, p plan, settled bool) error {
	a.tellForeign(p)
	a.showGPUs(p)
	mpsErr := a.mpsFailed(p)
	version, libraryErr := a.Library.Status()
	status := report.Status(report.Facts{
		LibraryVersion: version, LibraryFailed: libraryErr,
		Before: w.gpuNode.Status, Now: metav1.NewTime(w.now), Generation: w.gpuNode.Generation,
		Outcomes: p.outcomes, DriverVersion: w.look.DriverVersion,
		DriverFailed: w.failed, DriverMessage: w.message, Foreign: w.foreign,
		Published: publish.Published(w.ours), Settled: settled, PublishError: a.lastPublishError(), InUse: p.inUse,
		MPS: a.MPS.Report(), MPSFailed: mpsErr, Violations: a.Violations.Report(),
		Claims: p.claims, Processes: a.processes(ctx, w, p),
	})
	if equality.Semantic.DeepEqual(status, w.gpuNode.Status) {
		return nil
	}
	changed := w.gpuNode.DeepCopy()
	changed.Status = status
	if err := a.Cluster.UpdateStatus(ctx, changed); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}
