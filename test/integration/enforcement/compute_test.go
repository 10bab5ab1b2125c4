// SPDX-License-Identifier: Apache-2.0

package enforcement_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/container"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// capped is a GPU whose shares are never more than they say.
func capped() v1alpha1.GPUDecision {
	decision := shared()
	decision.Compute = v1alpha1.ComputeCap
	return decision
}

// portion is a share of so many percent of the GPU's time.
func portion(name, compute string) resourceapi.DeviceRequestAllocationResult {
	r := share(name)
	r.ConsumedCapacity[v1alpha1.CapacityCompute] = resource.MustParse(compute)
	return r
}

// burn starts a program that keeps the GPU busy for so many seconds, or would.
func burn(t *testing.T, plan container.Plan, seconds string) *exec.Cmd {
	t.Helper()
	plan.Args = []string{repository("interceptor", "build", "tests", "tools", "pace"), seconds, "500", "--block"}
	cmd, err := container.Command(plan)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &bytes.Buffer{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// worked is what the GPU has counted: its clock, and the time that processes have had of it, by the PIDs of the node.
type worked struct {
	ClockNs uint64
	GPUs    []struct {
		Processes []struct {
			HostPID      int `json:"hostPid"`
			BusyNs, Done uint64
		}
	}
}

func (n *node) worked(t *testing.T) worked {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), repository("test", "fakegpu", "build", "fakegpu"), "show", "--json", "--state", n.Node.State).Output()
	if err != nil {
		t.Fatal(err)
	}
	var w worked
	if err := json.Unmarshal(out, &w); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w worked) of(cmd *exec.Cmd) (busy uint64, begun bool) {
	for _, p := range w.GPUs[0].Processes {
		if p.HostPID == cmd.Process.Pid {
			return p.BusyNs, p.Done > 0
		}
	}
	return 0, false
}

// TestSharesOfComputeAreHeld has two claims of a pool with caps work as much as they can.
func TestSharesOfComputeAreHeld(t *testing.T) {
	n := newNode(t, capped())
	wants := map[string]float64{"30": 30, "60": 60}
	tenants := map[string]*exec.Cmd{}
	for compute := range wants {
		tenants[compute] = burn(t, n.prepare(t, n.Allocate("claim-of-"+compute, portion("gpu-0", compute))), "60")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	from := uint64(0)
	err := stack.Poll(ctx, "both have worked for a second and a half", func(context.Context) (bool, error) {
		w := n.worked(t)
		for _, cmd := range tenants {
			if _, begun := w.of(cmd); !begun {
				from = w.ClockNs
			}
		}
		return w.ClockNs-from > uint64(1500*time.Millisecond), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := n.worked(t)
	var after worked
	err = stack.Poll(ctx, "five seconds have passed", func(context.Context) (bool, error) {
		after = n.worked(t)
		return after.ClockNs-before.ClockNs > uint64(5*time.Second), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	had := map[string]float64{}
	for compute, cmd := range tenants {
		earlier, _ := before.of(cmd)
		later, _ := after.of(cmd)
		had[compute] = 100 * float64(later-earlier) / float64(after.ClockNs-before.ClockNs)
		t.Logf("the claim of %s %% had %.2f %% of the GPU: %s", compute, had[compute], cmd.Stderr)
		// A busy machine takes from both alike.
		if had[compute] > wants[compute]+1 || had[compute] < wants[compute]*0.8 {
			t.Errorf("the claim of %s %% had %.2f %% of the GPU", compute, had[compute])
		}
	}
	if ratio := had["60"] / had["30"]; ratio < 1.85 || ratio > 2.15 {
		t.Errorf("the larger share had %.2f times the smaller, want twice as much", ratio)
	}
}
