// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/mps"
)

// outside is a node with one GPU that two claims share by MPS.
type outside struct {
	claims    checkpoint.Claims
	state     mps.State
	away      error
	processes []holders.Process
	kept      int
	changes   int
	told      []string
	counts    []Count
	failKeep  error
}

func (o *outside) MPS(counts []Count) { o.counts = counts }

func (o *outside) Tell(_ context.Context, namespace string, pod checkpoint.Pod, _, reason, _ string) error {
	o.told = append(o.told, reason+" "+namespace+"/"+pod.Name)
	return nil
}

func (o *outside) Claims() (checkpoint.Claims, error) { return o.claims, nil }

func (o *outside) State(context.Context, string) (mps.State, error) { return o.state, o.away }

func (*outside) Program() error { return nil }

func (o *outside) KeepMPS(context.Context) error {
	o.kept++
	return o.failKeep
}

func (o *outside) On(context.Context, string, checkpoint.Claims) ([]holders.Process, error) {
	return o.processes, nil
}

func shared(uid string, change ...func(*checkpoint.Result)) checkpoint.Claim {
	r := checkpoint.Result{Device: "gpu-0", GPU: "GPU-0", MPS: true, Shared: true}
	for _, f := range change {
		f(&r)
	}
	return checkpoint.Claim{
		UID: uid, Namespace: "ns", Name: uid, State: checkpoint.Prepared, Results: []checkpoint.Result{r},
		Pods: []checkpoint.Pod{{Name: "pod-" + uid}},
	}
}

func newOutside() *outside {
	return &outside{
		claims:    checkpoint.Claims{Claims: map[string]checkpoint.Claim{"a": shared("a"), "b": shared("b")}},
		state:     mps.State{Servers: []int{10}, Clients: []int{20, 21}, MultiUser: true},
		processes: []holders.Process{{PID: 10, GIID: -1, Name: "server (10)"}, {PID: 20, GIID: -1, Tenant: true, Name: "train (20)"}},
	}
}

func (o *outside) watcher(t *testing.T) *Watcher {
	t.Helper()
	return &Watcher{Records: o, Daemons: o, Keeper: o, Holders: o, Teller: o, Gauges: o, Changed: func() { o.changes++ }, Log: testr.New(t)}
}

func TestLook(t *testing.T) {
	plain := holders.Process{PID: 30, GIID: -1, Tenant: true, Name: "python (30)"}
	for _, tc := range []struct {
		name   string
		change func(o *outside)
		want   []Finding
		told   []string
	}{
		{name: "clients and servers of the daemon are as they should be", change: func(*outside) {}},
		{
			name:   "a tenant's process that did not reach the server is named",
			change: func(o *outside) { o.processes = append(o.processes, plain) },
			want: []Finding{{"GPU-0", v1alpha1.ReasonMPSBypassed, "gpu-0: processes are on the device that did not reach its MPS server, " +
				"and run without its limits: python (30)"}},
		},
		{
			name: "a process on an instance of the GPU is not on the whole GPU",
			change: func(o *outside) {
				other := plain
				other.GIID = 3
				o.processes = append(o.processes, other)
			},
		},
		{
			name:   "a daemon that does not answer lets what starts run without a limit",
			change: func(o *outside) { o.state, o.away = mps.State{}, mps.ErrNoDaemon },
			want: []Finding{{"GPU-0", v1alpha1.ReasonMPSDaemonAway, "gpu-0: the MPS daemon does not answer, and what starts now runs " +
				"without a limit: the MPS daemon does not run"}},
			told: []string{"MPSDaemonAway ns/pod-a", "MPSDaemonAway ns/pod-b"},
		},
		{
			name:   "the tenants of a daemon that has ended are named",
			change: func(o *outside) { o.state.Marked = []string{"b", "gone"} },
			want: []Finding{{"GPU-0", v1alpha1.ReasonMPSDaemonEnded, "gpu-0: the MPS daemon has ended by itself and was started again; " +
				"what ran then must be started again to be held by the new one: ns/pod-b"}},
			told: []string{"MPSDaemonEnded ns/pod-b"},
		},
		{
			name:   "a broken server is said after a process beside it",
			change: func(o *outside) { o.state.Faulty, o.processes = []int{10}, append(o.processes, plain) },
			want: []Finding{
				{"GPU-0", v1alpha1.ReasonMPSBypassed, "gpu-0: processes are on the device that did not reach its MPS server, " +
					"and run without its limits: python (30)"},
				{"GPU-0", v1alpha1.ReasonMPSFault, "gpu-0: a process has broken the MPS server; it takes new ones when the 2 that it had are gone"},
			},
			told: []string{"MPSFault ns/pod-a", "MPSFault ns/pod-b"},
		},
		{
			name: "a server that is full is said",
			change: func(o *outside) {
				o.state.Clients = nil
				for pid := range mps.MaxClients {
					o.state.Clients = append(o.state.Clients, 20+pid)
				}
			},
			want: []Finding{{"GPU-0", v1alpha1.ReasonMPSFull, "gpu-0: the MPS server has 48 clients and takes no more"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutside()
			tc.change(o)
			w := o.watcher(t)
			for range 2 {
				if err := w.Look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(Report{Devices: 1, Findings: tc.want}, w.Report()); diff != "" {
				t.Errorf("report differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.told, o.told); diff != "" {
				t.Errorf("told pods differ (-want +got):\n%s", diff)
			}
			if o.kept != 2 {
				t.Errorf("daemons were kept %d times, want at each look", o.kept)
			}
		})
	}
}

func TestWhatComesBetweenTwoQuestionsIsNotBesideMPS(t *testing.T) {
	o := newOutside()
	w := o.watcher(t)
	for pid := range 5 {
		o.processes = []holders.Process{{PID: 100 + pid, GIID: -1, Name: "short"}}
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.Report().Findings; len(got) != 0 {
			t.Fatalf("found %v", got)
		}
	}
	if o.changes != 1 {
		t.Errorf("the agent was woken %d times, want once, for the first device", o.changes)
	}
}

func TestWithoutMPSNothingIsDone(t *testing.T) {
	o := newOutside()
	w := o.watcher(t)
	whole := shared("a", func(r *checkpoint.Result) { r.MPS = false })
	o.claims.Claims = map[string]checkpoint.Claim{"a": whole}
	for range 3 {
		if err := w.Look(t.Context()); err != nil || o.kept != 1 {
			t.Errorf("got %v and %d looks at daemons, want one, for what an earlier agent may have left", err, o.kept)
		}
	}
}

func TestADaemonThatCannotBeStoppedIsTriedAgain(t *testing.T) {
	o := newOutside()
	w := o.watcher(t)
	o.claims.Claims, o.failKeep = nil, errors.New("it does not end")
	for look := range 3 {
		if err := w.Look(t.Context()); !errors.Is(err, o.failKeep) || o.kept != look+1 {
			t.Errorf("got %v and %d looks at daemons after %d", err, o.kept, look+1)
		}
	}
	o.failKeep = nil
	for range 2 {
		if err := w.Look(t.Context()); err != nil || o.kept != 4 {
			t.Errorf("got %v and %d looks at daemons, want one more", err, o.kept)
		}
	}
}

func TestWhatIsToldOfABrokenServerIsToldOnce(t *testing.T) {
	o := newOutside()
	w := o.watcher(t)
	o.state.Faulty = []int{10}
	for pid := range 5 {
		o.state.Clients = append(o.state.Clients, 100+pid) // they come and go
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"MPSFault ns/pod-a", "MPSFault ns/pod-b"}, o.told); diff != "" {
		t.Errorf("told pods differ (-want +got):\n%s", diff)
	}
}

func TestDevicesAreCounted(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(o *outside)
		want   []Count
	}{
		{
			name: "clients, and processes beside them",
			change: func(o *outside) {
				o.processes = append(o.processes, holders.Process{PID: 30, GIID: -1}, holders.Process{PID: 31, GIID: -1})
			},
			want: []Count{{Device: "GPU-0", Answers: true, Clients: 2, Bypassing: 2}},
		},
		{
			name:   "a daemon that is away",
			change: func(o *outside) { o.state, o.away = mps.State{}, mps.ErrNoDaemon },
			want:   []Count{{Device: "GPU-0"}},
		},
		{name: "nothing once the last tenant is gone", change: func(o *outside) { o.claims.Claims = nil }, want: []Count{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOutside()
			w := o.watcher(t)
			if err := w.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			tc.change(o)
			for range 2 {
				if err := w.Look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, o.counts); diff != "" {
				t.Errorf("counts differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheLastDaemonIsLookedAfterOnceMore(t *testing.T) {
	o := newOutside()
	w := o.watcher(t)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.claims.Claims, o.away = nil, errors.New("not to be asked")
	if err := w.Look(t.Context()); err != nil || o.kept != 2 {
		t.Errorf("got %v and %d looks at daemons, want 2", err, o.kept)
	}
	if diff := cmp.Diff(Report{}, w.Report()); diff != "" {
		t.Errorf("report differs (-want +got):\n%s", diff)
	}
}
