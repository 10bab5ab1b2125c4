// SPDX-License-Identifier: Apache-2.0

package violations_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/usage"
	"github.com/sluice-gpu/sluice/node-agent/violations"
)

const (
	mebi = uint64(1) << 20
	gibi = uint64(1) << 30
)

// node is all that a watcher looks at: shares of 2 GiB of one GPU, and a procfs made of files.
type node struct {
	t         testing.TB
	clock     *testclock.FakeClock
	dir, proc string
	claims    map[string]checkpoint.Claim
	action    v1alpha1.ViolationAction
	watched   checkpoint.Watched
	saves     int
	words     map[string]limits.Words
	holders   map[string][]limits.Holder
	ledgers   map[string]limits.Ledger
	ledgerErr error
	partial   bool
	figures   map[string][]nvml.Figure
	nvmlErr   map[string]error
	hangs     chan struct{}
	reserved  []string
	told      []string
	killed    []int
	changes   int
	samples   []usage.Sample
	watcher   *violations.Watcher
}

func newNode(tb testing.TB, claims ...string) *node {
	tb.Helper()
	n := &node{
		t: tb, clock: testclock.NewFakeClock(time.Unix(1000, 0)), dir: tb.TempDir(), proc: tb.TempDir(), action: v1alpha1.ViolationReport,
		claims: map[string]checkpoint.Claim{}, words: map[string]limits.Words{}, holders: map[string][]limits.Holder{},
		figures: map[string][]nvml.Figure{}, ledgers: map[string]limits.Ledger{}, nvmlErr: map[string]error{},
	}
	for _, uid := range claims {
		n.claims[uid] = checkpoint.Claim{
			UID: uid, Namespace: "ml", Name: uid, State: checkpoint.Prepared, Pods: []checkpoint.Pod{{Name: "pod-" + uid, UID: podUID(uid)}},
			Results: []checkpoint.Result{{GPU: "GPU-0", Device: "gpu-0", Memory: int64(2 * gibi), Shared: true, Enforced: true}},
		}
		n.words[uid] = limits.Words{MemoryLimit: 2 * gibi, Context: 500 * mebi}
	}
	n.watcher = n.another()
	return n
}

// another is another agent's watcher.
func (n *node) another() *violations.Watcher {
	n.t.Helper()
	metrics, err := violations.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		n.t.Fatal(err)
	}
	return &violations.Watcher{
		Records: n, Hardware: n, Shares: n, Claims: n, Teller: n, Killer: n, Metrics: metrics, Usage: n, Proc: n.proc,
		Changed: func() { n.changes++ }, Clock: n.clock, Log: logr.Discard(),
	}
}

// podUID is the UID of a claim's pod.
func podUID(claim string) string { return fmt.Sprintf("%08x-2222-3333-4444-555555555555", claim[0]) }

// process is one on the GPU.
type process struct {
	pid     int
	bytes   uint64
	mounts  []string // claims whose shares it has mounted
	pod     string   // the claim whose pod it is in, "" in none
	name    string   // of its container
	library bool     // true where the library knows it
	idle    bool     // true where it is not on the GPU
}

// start starts a process.
func (n *node) start(p process) {
	n.t.Helper()
	n.write(p.pid, "stat", fmt.Sprintf("%d (python) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", p.pid, 100+p.pid))
	n.write(p.pid, "comm", "python\n")
	cgroup := "0::/system.slice/x.service\n"
	if p.pod != "" {
		cgroup = "0::/kubepods/pod" + podUID(p.pod) + "/" + p.name + "\n"
	}
	n.write(p.pid, "cgroup", cgroup)
	var stat unix.Stat_t
	if err := unix.Stat(n.dir, &stat); err != nil {
		n.t.Fatal(err)
	}
	var mounts strings.Builder
	mounts.WriteString("22 1 0:1 / /proc rw - proc none rw\n")
	for _, claim := range p.mounts {
		fmt.Fprintf(&mounts, "30 22 %d:%d /some/where/%s/0/limits /run/x\\040y/limits ro - tmpfs none rw\n", unix.Major(stat.Dev), unix.Minor(stat.Dev), claim)
		// Another file system's is somebody's own.
		fmt.Fprintf(&mounts, "31 22 99:99 /not-%s/0/limits /run/z ro - tmpfs none rw\n", claim)
	}
	n.write(p.pid, "mountinfo", mounts.String())
	if p.library {
		for _, claim := range p.mounts {
			n.holders[claim] = append(n.holders[claim], limits.Holder{PID: p.pid, Stamp: uint64(p.pid), Held: p.bytes})
		}
	}
	if !p.idle {
		n.figures["GPU-0"] = append(n.figures["GPU-0"], nvml.Figure{PID: p.pid, Bytes: p.bytes, Known: p.bytes > 0})
	}
}

func (n *node) write(pid int, name, text string) {
	n.t.Helper()
	dir := filepath.Join(n.proc, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// end ends all processes.
func (n *node) end() {
	n.t.Helper()
	for _, f := range n.figures["GPU-0"] {
		if err := os.RemoveAll(filepath.Join(n.proc, strconv.Itoa(f.PID))); err != nil {
			n.t.Fatal(err)
		}
	}
	n.figures["GPU-0"] = nil
	clear(n.holders)
}

// look looks so often.
func (n *node) look(times int) {
	n.t.Helper()
	for range times {
		if err := n.watcher.Look(n.t.Context()); err != nil {
			n.t.Fatal(err)
		}
		n.clock.Step(violations.Period)
	}
}

// said is the report in short.
func (n *node) said() []string {
	list := []string{}
	r := n.watcher.Report()
	for _, v := range r.Violations {
		text := fmt.Sprintf("%s %s %s/%s %s", v.Claim, v.Reason, v.Held, v.Limit, strings.Join(v.Pods, "+"))
		list = append(list, strings.TrimSpace(text+" "+strings.Join(v.Processes, "+")))
	}
	return append(list, r.Unverified...)
}

func (n *node) Claims() (checkpoint.Claims, error) {
	return checkpoint.Claims{Claims: maps.Clone(n.claims)}, nil
}

func (n *node) Published() (checkpoint.Published, error) {
	return checkpoint.Published{GPUs: []checkpoint.PublishedGPU{{
		Facts: checkpoint.Facts{UUID: "GPU-0"},
		Form:  v1alpha1.GPUDecision{UUID: "GPU-0", Sharing: v1alpha1.SharingSoftware, OnViolation: n.action},
	}}}, nil
}

func (n *node) Watched() (checkpoint.Watched, error) { return n.watched, nil }

func (n *node) SaveWatched(w checkpoint.Watched) error {
	n.saves++
	n.watched = w
	return nil
}

func (n *node) Figures(ctx context.Context, gpu, device string) ([]nvml.Figure, error) {
	if n.hangs != nil && gpu == "GPU-1" {
		<-n.hangs
	}
	return n.figures[device], errors.Join(n.nvmlErr[device], ctx.Err())
}

func (n *node) Show(samples []usage.Sample) { n.samples = samples }

func (n *node) Root() string { return n.dir }

func (n *node) Words(claim string, _ int) (limits.Words, error) {
	words, ok := n.words[claim]
	if !ok {
		return words, limits.ErrNoShare
	}
	return words, nil
}

func (n *node) Ledger(claim string, _ int, _ time.Duration) (limits.Ledger, error) {
	ledger := n.ledgers[claim]
	ledger.Holders, ledger.All = n.holders[claim], n.ledgerErr == nil && !n.partial
	return ledger, n.ledgerErr
}

func (n *node) Get(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
	for _, pod := range n.reserved {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: "pod-" + pod, UID: types.UID(podUID(pod)),
		})
	}
	return claim, nil
}

func (n *node) Tell(_ context.Context, namespace string, pod checkpoint.Pod, eventType, reason, message string) error {
	n.told = append(n.told, fmt.Sprintf("%s/%s %s %s: %s", namespace, pod.Name, eventType, reason, message))
	return nil
}

func (n *node) Kill(pid int, still func() bool) error {
	if !still() {
		return os.ErrProcessDone
	}
	n.killed = append(n.killed, pid)
	return nil
}
