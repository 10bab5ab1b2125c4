// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// held is what a worker's first program keeps.
const held = 20

// Worker is a tenant at work: one of its programs holds memory, another one takes over and over what is left, and gives it
// back. Its log tells both whether it works and whether its limit holds, without an API server.
type Worker struct {
	lab   *machine.Lab
	pod   *corev1.Pod
	limit uint64
}

// Work starts a worker in a share of so many GiB.
func Work(t *testing.T, lab *machine.Lab, name, pool string, gibi uint64) *Worker {
	t.Helper()
	p := Pod(name, pool, fmt.Sprintf("%dGi", gibi))
	script := fmt.Sprintf("trap 'exit 0' TERM; /bin/mkdir -p /tmp; : >/tmp/held; /bin/tenant --most %d >/tmp/held & "+
		"while ! /bin/grep -q chunks /tmp/held; do /bin/sleep 0.05; done; "+
		"while :; do /bin/tenant --exit || echo failed; /bin/sleep 0.2; done", held)
	p.Spec.Containers[0].Command = []string{"/bin/sh", "-c", script}
	w := &Worker{lab: lab, pod: Run(t, lab, p), limit: gibi * Gibi}
	w.Progress(t)
	return w
}

// Pod is the worker's pod as it was when it began.
func (w *Worker) Pod() *corev1.Pod { return w.pod }

// lines are the whole lines of the worker's log.
func (w *Worker) lines() []string {
	text, _ := w.lab.Log(w.pod, w.pod.Spec.Containers[0].Name, 0)
	lines := strings.Split(text, "\n")
	return lines[:len(lines)-1]
}

// Progress waits until the worker has worked from now on. It takes no API server.
func (w *Worker) Progress(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	before := len(w.lines())
	// What follows the next line, which may have begun before, began after now.
	err := stack.Poll(ctx, "the tenant "+w.pod.Name+" works", func(context.Context) (bool, error) { return len(w.lines()) >= before+2, nil })
	if err != nil {
		t.Fatal(err)
	}
}

// Check checks that the worker works, has not been started again, and was held to its limit all the time.
func (w *Worker) Check(t *testing.T) {
	t.Helper()
	w.Progress(t)
	first := Outcome{}
	for i, line := range w.lines() {
		got, err := Decode(line)
		if i == 0 {
			first = got
			if wrong := Within(got, w.limit, 1, held); wrong != "" {
				t.Errorf("%s: %s", w.pod.Name, wrong)
			}
		}
		if got != first || err != nil {
			t.Errorf("line %d of %s is %q (%v), and the first was %+v", i, w.pod.Name, line, err, first)
			break
		}
	}
	now := &corev1.Pod{}
	if err := w.lab.Client.Get(t.Context(), client.ObjectKeyFromObject(w.pod), now); err != nil {
		t.Errorf("looking for the tenant: %v", err)
		return
	}
	if now.UID != w.pod.UID || Restarts(now) != 0 || now.DeletionTimestamp != nil {
		t.Errorf("the tenant %s was not left alone: started again %d times, of UID %s, which was %s", now.Name, Restarts(now), now.UID, w.pod.UID)
	}
}
