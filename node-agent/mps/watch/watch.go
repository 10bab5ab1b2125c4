// SPDX-License-Identifier: Apache-2.0

// Package watch looks after the devices that claims share by MPS: it has daemons that ended by themselves started again, and
// finds the processes that are on such a device without being held by its daemon. Only the node's active agent watches.
package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/mps"
)

// Period is the time between two looks.
const Period = 5 * time.Second

// Records is the checkpoint.
type Records interface {
	Claims() (checkpoint.Claims, error)
}

// Daemons is the door to the MPS daemons.
type Daemons interface {
	State(ctx context.Context, device string) (mps.State, error)
	Program() error
}

// Keeper brings the daemons in line with the prepared claims.
type Keeper interface {
	KeepMPS(ctx context.Context) error
}

// Holders says which processes are on a GPU.
type Holders interface {
	On(ctx context.Context, gpuUUID string, recorded checkpoint.Claims) ([]holders.Process, error)
}

// Teller writes events.
type Teller interface {
	Tell(ctx context.Context, namespace string, pod checkpoint.Pod, eventType, reason, message string) error
}

// Gauges are the metrics of the devices that are shared by MPS.
type Gauges interface {
	MPS(counts []Count)
}

// Count is what a look has shown of one device, as numbers.
type Count struct {
	// Device is its UUID.
	Device string
	// Answers is true where its daemon does.
	Answers bool
	// Clients are the processes that the daemon holds, Bypassing those on the device that it does not.
	Clients, Bypassing int
}

// Report is what the last look has shown.
type Report struct {
	// Devices is how many are shared by MPS now.
	Devices int
	// Findings are what is wrong, the worst first.
	Findings []Finding
}

// Finding is something wrong with one device.
type Finding struct {
	// Device is its UUID, Reason one of the API's, and Message a sentence for people.
	Device, Reason, Message string
}

// Watcher watches.
type Watcher struct {
	Records Records
	Daemons Daemons
	Keeper  Keeper
	Holders Holders
	// Teller tells pods what has become of their MPS.
	Teller Teller
	Gauges Gauges
	// Changed is called when a look shows something else than the one before.
	Changed func()
	Log     logr.Logger

	// suspects are the processes that were beside MPS at the last look, by device: a process that comes or goes between
	// two questions is not taken for one.
	suspects map[string][]int
	// idle is true once nothing is shared by MPS and nothing is left of what was.
	idle bool

	// mu guards what others read.
	mu     sync.Mutex
	report Report
}

// Report is what the last look has shown.
func (w *Watcher) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
}

// Program is an error where the node has no program for daemons.
func (w *Watcher) Program() error { return w.Daemons.Program() } //nolint:wrapcheck // the door's errors say what was being done

// Run looks until the context ends.
func (w *Watcher) Run(ctx context.Context, c clock.WithTicker) {
	ticker := c.NewTicker(Period)
	defer ticker.Stop()
	for {
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.Log.Error(err, "Not every MPS daemon could be looked after; it is tried again")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// device is one that claims share by MPS.
type device struct {
	uuid, gpu, name string
	giID            int
	// claims are the UIDs of those that share it.
	claims []string
}

// Look looks at every device once.
func (w *Watcher) Look(ctx context.Context) error {
	recorded, err := w.Records.Claims()
	if err != nil {
		return fmt.Errorf("reading the prepared claims: %w", err)
	}
	devices := devicesOf(recorded)
	if len(devices) == 0 && w.idle {
		return nil
	}
	// What the daemons are short of is seen below: this says no more than why.
	failed := []error{w.Keeper.KeepMPS(ctx)}
	w.idle = len(devices) == 0 && failed[0] == nil
	counts := make([]Count, 0, len(devices))
	report := Report{Devices: len(devices)}
	suspects, concerned := map[string][]int{}, map[string]concern{}
	for _, d := range devices {
		s, err := w.sight(ctx, d, recorded)
		failed = append(failed, err)
		found, again, bypassing := judge(d, s, w.suspects[d.uuid])
		suspects[d.uuid] = again
		counts = append(counts, Count{Device: d.uuid, Answers: s.away == nil, Clients: len(s.state.Clients), Bypassing: bypassing})
		concerned[d.uuid] = concern{all: d.claims, marked: s.state.Marked}
		report.Findings = append(report.Findings, found...)
	}
	slices.SortStableFunc(report.Findings, worstFirst)
	w.suspects = suspects
	w.Gauges.MPS(counts)
	w.publish(ctx, report, concerned, recorded)
	return errors.Join(failed...)
}

// publish keeps a report, and says what is new in it.
func (w *Watcher) publish(ctx context.Context, report Report, concerned map[string]concern, recorded checkpoint.Claims) {
	w.mu.Lock()
	before := w.report
	w.report = report
	w.mu.Unlock()
	for _, f := range report.Findings {
		if slices.Contains(before.Findings, f) {
			continue
		}
		w.Log.Info("MPS does not hold a device as it should", "device", f.Device, "reason", f.Reason, "message", f.Message)
		if !slices.ContainsFunc(before.Findings, f.told) {
			w.tell(ctx, f, concerned[f.Device], recorded)
		}
	}
	if before.Devices != report.Devices || !slices.Equal(before.Findings, report.Findings) {
		w.Changed()
	}
}

// told is true where pods were told of the finding with an earlier one, although its words may be others. Of daemons that have
// ended the words are what counts: they name the tenants.
func (f Finding) told(before Finding) bool {
	return f.Device == before.Device && f.Reason == before.Reason && f.Reason != v1alpha1.ReasonMPSDaemonEnded
}

// devicesOf are the devices of prepared claims that MPS holds, each once.
func devicesOf(recorded checkpoint.Claims) []device {
	var devices []device
	for _, claim := range recorded.Sorted() {
		for _, r := range claim.Results {
			if claim.State != checkpoint.Prepared || !r.MPS || r.Admin {
				continue
			}
			d := device{uuid: r.GPU, gpu: r.GPU, name: r.Device, giID: -1}
			if r.Instance != nil {
				d.uuid, d.giID = r.Instance.UUID, r.Instance.GIID
			}
			i := slices.IndexFunc(devices, func(other device) bool { return other.uuid == d.uuid })
			if i < 0 {
				devices, i = append(devices, d), len(devices)
			}
			devices[i].claims = append(devices[i].claims, claim.UID)
		}
	}
	return devices
}

// sight is what is to be seen of a device.
type sight struct {
	// away is why there is no daemon that answers; nil where there is one.
	away  error
	state mps.State
	// processes are those on the device; unknown where they could not be listed.
	processes []holders.Process
	unknown   bool
	// marked are the users of claims whose daemon had ended.
	marked []string
}

// sight asks first for the processes and then for the clients among them: one that starts meanwhile is none too many.
func (w *Watcher) sight(ctx context.Context, d device, recorded checkpoint.Claims) (sight, error) {
	var s sight
	all, err := w.Holders.On(ctx, d.gpu, recorded)
	if err != nil {
		s.unknown = true
		err = fmt.Errorf("listing the processes on %s: %w", d.name, err)
	}
	for _, p := range all {
		if p.GIID == d.giID {
			s.processes = append(s.processes, p)
		}
	}
	s.state, s.away = w.Daemons.State(ctx, d.uuid)
	for _, uid := range s.state.Marked {
		if claim, ok := recorded.Claims[uid]; ok {
			s.marked = append(s.marked, claim.Users()...)
		}
	}
	return s, err
}

// concern are the UIDs of claims that something wrong with a device concerns: all, and those whose daemon had ended.
type concern struct{ all, marked []string }

// by are those that a finding concerns, and what they are told: nothing about other tenants.
func (c concern) by(f Finding) (claims []string, message string) {
	switch f.Reason {
	case v1alpha1.ReasonMPSDaemonEnded:
		return c.marked, "the MPS daemon of the GPU has ended by itself and was started again; start the pod again to be held by the new one"
	case v1alpha1.ReasonMPSDaemonAway:
		return c.all, "the MPS daemon of the GPU does not answer; what starts CUDA now runs without MPS"
	case v1alpha1.ReasonMPSFault:
		return c.all, "a process has broken the MPS server that all tenants of the GPU share; work on it has failed"
	default:
		return nil, ""
	}
}

// tell writes an event on each pod of the claims. One that cannot be written is not tried again: the status says the same.
func (w *Watcher) tell(ctx context.Context, f Finding, c concern, recorded checkpoint.Claims) {
	claims, message := c.by(f)
	for _, uid := range claims {
		claim := recorded.Claims[uid]
		for _, pod := range claim.Pods {
			if err := w.Teller.Tell(ctx, claim.Namespace, pod, corev1.EventTypeWarning, f.Reason, message); err != nil {
				w.Log.Info("A pod is not told about MPS", "pod", claim.Namespace+"/"+pod.Name, "err", err.Error())
			}
		}
	}
}
