// SPDX-License-Identifier: Apache-2.0

package escapes_test

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// foundWithin is how soon what gets past the library is found, and how soon the pool's word about it is followed.
const foundWithin = 10 * time.Second

// The programs that get past the library take so many chunks: more than a share of 2 GiB has, and less.
const (
	above = 40
	below = 8
)

// reasonKilled and reasonEvicted are reasons of events on pods.
const (
	reasonKilled  = "ProcessesKilled"
	reasonEvicted = "EvictedForViolation"
)

func gpuNode(t *testing.T) *v1alpha1.GPUNode {
	t.Helper()
	found := &v1alpha1.GPUNode{}
	if err := lab.Client.Get(t.Context(), client.ObjectKey{Name: node}, found); err != nil {
		t.Fatal(err)
	}
	return found
}

// told waits for an event on a pod and returns its text, and how long after a moment it came.
func told(t *testing.T, p *corev1.Pod, reason string, after time.Time) (string, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), foundWithin)
	defer cancel()
	text := ""
	err := stack.Poll(ctx, fmt.Sprintf("the pod %s is told %s", p.Name, reason), func(ctx context.Context) (bool, error) {
		events := &corev1.EventList{}
		fields := client.MatchingFields{"involvedObject.uid": string(p.UID), "reason": reason}
		if err := lab.Client.List(ctx, events, client.InNamespace(p.Namespace), fields); err != nil || len(events.Items) == 0 {
			return false, client.IgnoreNotFound(err)
		}
		text = events.Items[0].Message
		return true, nil
	})
	took := time.Since(after)
	if err != nil {
		t.Fatal(err)
	}
	if took > foundWithin {
		t.Errorf("the pod %s is told %s after %.1f s", p.Name, reason, took.Seconds())
	}
	t.Logf("%s: %s after %.1f s: %s", p.Name, reason, took.Seconds(), text)
	return text, took
}

// untold checks that no event of a reason is on a pod.
func untold(t *testing.T, p *corev1.Pod, reasons ...string) {
	t.Helper()
	events := &corev1.EventList{}
	err := lab.Client.List(t.Context(), events, client.InNamespace(p.Namespace), client.MatchingFields{"involvedObject.uid": string(p.UID)})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if slices.Contains(reasons, e.Reason) {
			t.Errorf("the pod %s is told %s: %s", p.Name, e.Reason, e.Message)
		}
	}
}

// within waits for something as long as finding may take.
func within(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), foundWithin)
	defer cancel()
	if err := stack.Poll(ctx, what, func(ctx context.Context) (bool, error) { return done(ctx), nil }); err != nil {
		t.Error(err)
	}
}

// violated is a pod's violation in the status of its GPUNode; nil where there is none.
func violated(t *testing.T, p *corev1.Pod) *v1alpha1.Violation {
	t.Helper()
	list := gpuNode(t).Status.Violations
	i := slices.IndexFunc(list, func(v v1alpha1.Violation) bool { return slices.Contains(v.Pods, p.Namespace+"/"+p.Name) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// says has the pool say what becomes of violations, until the test is over.
func says(t *testing.T, action v1alpha1.ViolationAction) {
	t.Helper()
	set := func(ctx context.Context, action v1alpha1.ViolationAction) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"sharing":{"onViolation":%q}}}`, action))
		if err := lab.Client.Patch(ctx, &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
			t.Error(err)
		}
	}
	set(t.Context(), action)
	t.Cleanup(func() { set(context.WithoutCancel(t.Context()), v1alpha1.ViolationReport) })
}

// metric reads one of the agent's metrics, by its name with its labels.
func metric(t *testing.T, name string) float64 {
	t.Helper()
	agent, err := lab.Agent(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	out, err := lab.Kubectl(t.Context(), "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", agent.Namespace, agent.Name))
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("the agent has no metric %s", name)
	return 0
}

// neighbour is a pod of somebody else's on the GPU, whose program holds memory.
type neighbour struct {
	pod     *corev1.Pod
	program program
}

const neighbours = 20

func newNeighbour(t *testing.T) neighbour {
	t.Helper()
	p := tenant(t, "beside", "4Gi", false)
	return neighbour{pod: p, program: start(t, p, "main", "exec tenant --most $most", neighbours)}
}

// untouched checks that the neighbour holds what it held, can have the rest of its share, and has been told nothing.
func (n neighbour) untouched(t *testing.T) {
	t.Helper()
	fills(t, n.pod, "main", 4*gibi, 1, neighbours)
	if !n.program.runs(t, n.pod, "main") {
		t.Error("the neighbour's program is gone")
	}
	standing(t, n.pod)
	untold(t, n.pod, v1alpha1.ReasonOverLimit, v1alpha1.ReasonUnregisteredProcess, reasonKilled, reasonEvicted)
}

// standing checks that a pod is there and that none of its containers was started again.
func standing(t *testing.T, p *corev1.Pod) {
	t.Helper()
	now := &corev1.Pod{}
	if err := lab.Client.Get(t.Context(), client.ObjectKeyFromObject(p), now); err != nil {
		t.Fatal(err)
	}
	if now.UID != p.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod %s does not go on: %s", p.Name, now.Status.Phase)
	}
	for _, c := range now.Status.ContainerStatuses {
		if c.RestartCount != 0 {
			t.Errorf("the container %s of %s was started again %d times", c.Name, p.Name, c.RestartCount)
		}
	}
}
