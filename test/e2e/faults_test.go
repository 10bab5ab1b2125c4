// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// decode reads the line that a CUDA program prints.
func decode(t *testing.T, line string) outcome {
	t.Helper()
	var got outcome
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("reading %q: %v", line, err)
	}
	return got
}

// logged waits for the line that the CUDA program of a pod's first container prints after so many restarts.
func logged(t *testing.T, p *corev1.Pod, restart int) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var line string
	err := stack.Poll(ctx, "the tenant's program has said what it took", func(context.Context) (bool, error) {
		line, _ = lab.Log(p, p.Spec.Containers[0].Name, restart)
		return strings.HasSuffix(line, "}\n"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, line)
}

// aNewOneStarts checks that a machine serves new tenants.
func aNewOneStarts(t *testing.T, name, on string) {
	t.Helper()
	same(t, fits(2*gibi, 0, 0), take(t, run(t, pod(name, on, "2Gi")), "main", "/bin/tenant"))
}

func TestTenantsOutliveTheirNodesPrograms(t *testing.T) {
	p := run(t, pod("outlives", small, "4Gi"))
	hold(t, p, 20)
	still := func(t *testing.T) {
		t.Helper()
		same(t, fits(4*gibi, 1, 20), take(t, p, "main", "/bin/tenant"))
		if now := await(t, p, "is there", func(*corev1.Pod) bool { return true }); restarts(now) != 0 {
			t.Errorf("its container was started again %d times", restarts(now))
		}
	}
	for _, tc := range []struct {
		name   string
		breaks func(ctx context.Context) error
	}{
		{name: "the agent is killed", breaks: func(ctx context.Context) error { return lab.KillAgent(ctx, small) }},
		{name: "kubelet is killed", breaks: func(ctx context.Context) error {
			if _, err := lab.Machine(ctx, "kubelet-kill", small); err != nil {
				return err
			}
			_, err := lab.Machine(ctx, "kubelet-start", small)
			return err
		}},
		{name: "containerd is killed", breaks: func(ctx context.Context) error {
			if _, err := lab.Machine(ctx, "containerd-kill", small); err != nil {
				return err
			}
			_, err := lab.Machine(ctx, "containerd-start", small)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.breaks(t.Context()); err != nil {
				t.Fatal(err)
			}
			aNewOneStarts(t, "new", small)
			still(t)
		})
	}
}

func TestAMachineReboots(t *testing.T) {
	p := pod("reboots", small, "3Gi")
	p.Spec.Containers[0].Command = []string{"/bin/tenant"}
	p = run(t, p)
	same(t, fits(3*gibi, 0, 0), logged(t, p, 0))
	if _, err := lab.Machine(t.Context(), "reboot", small); err != nil {
		t.Fatal(err)
	}
	p = again(t, p)
	same(t, fits(3*gibi, 0, 0), logged(t, p, 1))
	aNewOneStarts(t, "after", small)
}
