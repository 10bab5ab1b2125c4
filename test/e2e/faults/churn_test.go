// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// figures are what a process says of itself.
type figures struct{ goroutines, files, memory, started float64 }

func (f figures) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f open files, %.1f MiB", f.goroutines, f.files, f.memory/(1<<20))
}

// figuresOf reads the metrics of each of Sluice's pods: the agents, and the replicas of the manager.
func figuresOf(ctx context.Context) (map[string]figures, error) {
	var pods corev1.PodList
	if err := lab.Client.List(ctx, &pods, client.InNamespace(stack.Namespace)); err != nil {
		return nil, fmt.Errorf("listing Sluice's pods: %w", err)
	}
	all := map[string]figures{}
	for _, p := range pods.Items {
		path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", stack.Namespace, p.Name)
		text, err := lab.Kubectl(ctx, "get", "--raw", path)
		if err != nil {
			return nil, err
		}
		all[p.Name+" on "+p.Spec.NodeName] = figures{
			goroutines: metric(text, "go_goroutines"), files: metric(text, "process_open_fds"),
			memory: metric(text, "process_resident_memory_bytes"), started: metric(text, "process_start_time_seconds"),
		}
	}
	return all, nil
}

// figuresSoon are those of a moment at which all of Sluice's pods answer: other tests take some away for a while.
func figuresSoon(t *testing.T) map[string]figures {
	t.Helper()
	var all map[string]figures
	await(t, "agents and managers say how they are", func(ctx context.Context) (bool, error) {
		all, _ = figuresOf(ctx) // what is away comes back
		return all != nil, nil
	})
	return all
}

func metric(text, name string) float64 {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			value, _ := strconv.ParseFloat(fields[1], 64)
			return value
		}
	}
	return 0
}

// flat says in what a process has grown. Go gives memory back late, and connections end late.
func flat(before, after figures) []string {
	var grown []string
	if after.goroutines > before.goroutines+10 {
		grown = append(grown, "goroutines")
	}
	if after.files > before.files+5 {
		grown = append(grown, "open files")
	}
	if after.memory > before.memory*1.25+16<<20 {
		grown = append(grown, "memory")
	}
	return grown
}

func TestPodsComeAndGo(t *testing.T) {
	t.Parallel()
	before, err := files(t.Context(), large)
	must(t, err)
	many := &load{name: "many", shared: 36, divided: 14}
	end := time.Now().Add(either(time.Minute, 10*time.Minute))
	// The first round fills caches and pools of connections.
	must(t, many.round(t.Context(), 0))
	warm := figuresSoon(t)
	rounds := 1
	for ; time.Now().Before(end); rounds++ {
		must(t, many.round(t.Context(), rounds))
		if rounds%10 == 0 {
			t.Logf("after %d pods: %v", many.started, figuresSoon(t))
		}
	}
	nothingLeft(t, large, before)
	nothingTwice(t)
	var now map[string]figures
	var grown string
	ctx, cancel := context.WithTimeout(t.Context(), tenants.Patience)
	defer cancel()
	err = stack.Poll(ctx, "agent and manager are as before", func(context.Context) (bool, error) {
		now = figuresSoon(t)
		grown = ""
		for name, f := range now {
			was, known := warm[name]
			// Another test kills agents: one that was started again is another process.
			if what := flat(was, f); known && was.started == f.started && len(what) > 0 {
				grown += fmt.Sprintf("%s has more %s; ", name, strings.Join(what, ", "))
			}
		}
		return grown == "", nil
	})
	if err != nil {
		t.Errorf("%v: %s", err, grown)
	}
	for name, f := range now {
		t.Logf("%s: %v after the first 50 pods, %v after %d in %d rounds", name, warm[name], f, many.started, rounds)
	}
}
