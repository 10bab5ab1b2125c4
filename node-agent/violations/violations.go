// SPDX-License-Identifier: Apache-2.0

// Package violations finds the processes that get past the library, and the shares that hold more memory than they may: it
// compares what NVML says of every process of a share's containers with the share's limit. It tells of them and, where the
// pool says so, kills them. Only the node's active agent does that; evicting is the manager's.
package violations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/violation"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/usage"
)

// Period is the time between two looks. What is wrong at two of them is found within 10 s, the time that looking takes included.
const Period = 3 * time.Second

// Records is the checkpoint.
type Records interface {
	Claims() (checkpoint.Claims, error)
	Published() (checkpoint.Published, error)
	Watched() (checkpoint.Watched, error)
	SaveWatched(w checkpoint.Watched) error
}

// Hardware is the NVML door.
type Hardware interface {
	Figures(ctx context.Context, gpuUUID, deviceUUID string) ([]nvml.Figure, error)
}

// Shares is the door to the share files.
type Shares interface {
	Root() string
	Words(claimUID string, index int) (limits.Words, error)
	Ledger(claimUID string, index int, budget time.Duration) (limits.Ledger, error)
}

// Claims reads claims; nil where there is none of the name.
type Claims interface {
	Get(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// Teller writes events.
type Teller interface {
	Tell(ctx context.Context, namespace string, pod checkpoint.Pod, eventType, reason, message string) error
}

// Killer ends processes.
type Killer interface {
	// Kill kills a process if, right before, it is still the one that is meant.
	Kill(pid int, still func() bool) error
}

// Usage shows what shares hold.
type Usage interface {
	Show(samples []usage.Sample)
}

// Report is what the looks have shown.
type Report struct {
	// Known is false until enough looks were made to say anything.
	Known bool
	// Shares is how many there are.
	Shares int
	// Violations are those that are found, the longest first.
	Violations []v1alpha1.Violation
	// Unverified say of whom there is no figure, as sentences for people.
	Unverified []string
}

// Watcher watches.
type Watcher struct {
	Records  Records
	Hardware Hardware
	Shares   Shares
	Claims   Claims
	Teller   Teller
	Killer   Killer
	Metrics  *Metrics
	Usage    Usage
	// Proc is the node's procfs.
	Proc string
	// Changed is called when a look shows something else than the one before.
	Changed func()
	Clock   clock.WithTicker
	Log     logr.Logger

	finder *finder
	asker  asker
	memory violation.Memory
	looks  int
	saved  checkpoint.Watched
	said   map[violation.Share]v1alpha1.Violation
	told   map[telling]time.Time
	pods   map[string]podsOf
	// met are the pods that were in no record, and when it was asked what they have.
	met map[string]time.Time

	// mu guards what others read.
	mu     sync.Mutex
	report Report
}

// Report is what the looks have shown.
func (w *Watcher) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
}

// Run looks until the context ends. Trouble is logged once, and once more when it is over.
func (w *Watcher) Run(ctx context.Context) {
	ticker := w.Clock.NewTicker(Period)
	defer ticker.Stop()
	trouble := ""
	for {
		text := ""
		err := w.Look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			text = err.Error()
		}
		switch {
		case text == trouble:
		case err != nil:
			w.Log.Error(err, "Not every share could be held against its limit; it is tried again")
		default:
			w.Log.Info("Every share can be held against its limit again")
		}
		trouble = text
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Look looks at everything once, and acts on what that shows. What cannot be looked at takes nothing from the rest.
func (w *Watcher) Look(ctx context.Context) error {
	w.begin()
	n, failed := w.node()
	if n == nil {
		return failed
	}
	var l violation.Look
	if len(n.order) > 0 {
		var err error
		l, err = w.look(ctx, n)
		failed = errors.Join(failed, err)
	} else {
		w.finder = newFinder(w.Proc, checkpoint.Watched{})
	}
	var found violation.Findings
	w.memory, found = violation.Judge(w.memory, l, w.Clock.Now())
	w.looks++
	killed := w.act(n, found)
	w.Usage.Show(samples(n, l, found))
	w.publish(ctx, n, found, killed)
	return errors.Join(failed, w.save())
}

// begin reads what an agent before this one has remembered. A record that cannot be read costs no more than what was in it.
func (w *Watcher) begin() {
	if w.finder != nil {
		return
	}
	record, err := w.Records.Watched()
	if err != nil {
		w.Log.Error(err, "What containers were started with is lost; those that left their mounts behind are not all found")
	}
	w.finder, w.saved, w.memory = newFinder(w.Proc, record), record, violation.Remember(record.Limits)
	w.asker = asker{open: map[string]chan answer{}}
	w.met = map[string]time.Time{}
	w.said, w.told, w.pods = map[violation.Share]v1alpha1.Violation{}, map[telling]time.Time{}, map[string]podsOf{}
}

// save records what another agent could not see any more.
func (w *Watcher) save() error {
	now := checkpoint.Watched{Version: w.saved.Version, Containers: w.finder.record(), Limits: w.memory.Highest()}
	if equality.Semantic.DeepEqual(now, w.saved) {
		return nil
	}
	if err := w.Records.SaveWatched(now); err != nil {
		return fmt.Errorf("recording which shares containers have: %w", err)
	}
	w.saved = now
	return nil
}

// publish keeps what was found, tells those whom it concerns, and has it reported where it is news.
func (w *Watcher) publish(ctx context.Context, n *node, found violation.Findings, killed map[violation.Share][]string) {
	report := Report{Known: w.looks >= violation.Looks, Shares: len(n.order), Unverified: unverified(n, found.Unverified)}
	said := map[violation.Share]v1alpha1.Violation{}
	for _, f := range found.Violations {
		v := steady(w.said[f.Share], w.describe(ctx, n, f))
		said[f.Share] = v
		report.Violations = append(report.Violations, v)
	}
	w.tell(ctx, n, said, killed)
	w.said = said
	maps.DeleteFunc(w.met, func(_ string, asked time.Time) bool { return w.Clock.Now().Sub(asked) >= askAgain })
	maps.DeleteFunc(w.pods, func(uid string, _ podsOf) bool { return !n.has(uid) })
	w.Metrics.found(report)
	w.mu.Lock()
	before := w.report
	w.report = report
	w.mu.Unlock()
	if equality.Semantic.DeepEqual(before, report) {
		return
	}
	for _, text := range report.Unverified {
		if !slices.Contains(before.Unverified, text) {
			w.Log.Info("Nobody can say what a share's processes hold", "why", text)
		}
	}
	w.Changed()
}
