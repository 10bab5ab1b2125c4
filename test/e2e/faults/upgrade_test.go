// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// libraryOf is the version of the library that a pod has, by its directory on the node.
func libraryOf(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	mounts, err := lab.Exec(t.Context(), p, "main", "/bin/cat", "/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasSuffix(fields[3], "/libsluice.so") {
			return fields[3]
		}
	}
	t.Fatalf("the pod %s has no library:\n%s", p.Name, mounts)
	return ""
}

func TestUpgradesUnderLoad(t *testing.T) {
	must(t, installPrevious(t.Context(), lab)) // where a test before has left another one
	workers := []*tenants.Worker{tenants.Work(t, lab, "stays-large", large, 3), tenants.Work(t, lab, "stays-small", small, 4)}
	library := libraryOf(t, workers[0].Pod())
	steps := []struct {
		name string
		do   func(ctx context.Context) error
		// changes is true where new pods get another library than those that run from the start.
		changes bool
	}{
		{name: "helm upgrade to this chart and its images", changes: true, do: func(ctx context.Context) error {
			return lab.Install(ctx, stack.Path("charts", "sluice"))
		}},
		{name: "helm rollback", do: lab.Rollback},
		{name: "helm upgrade once more", changes: true, do: func(ctx context.Context) error {
			return lab.Install(ctx, stack.Path("charts", "sluice"))
		}},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			passing := &load{name: "passing", shared: 6, divided: 2}
			started := passing.during(t, func() {
				if err := step.do(t.Context()); err != nil {
					t.Error(err)
				}
			})
			t.Logf("%d pods were started meanwhile", started)
			fresh := runs(t, tenants.Pod("fresh", large, "2Gi"))
			if got := libraryOf(t, fresh); (got != library) != step.changes {
				t.Errorf("a new pod has the library %s, those before have %s", got, library)
			}
			held(t, fresh, 2)
			for _, w := range workers {
				w.Check(t)
				if got := libraryOf(t, w.Pod()); got != library {
					t.Errorf("the library of %s became %s, it was %s", w.Pod().Name, got, library)
				}
			}
			nothingTwice(t)
		})
	}
}
