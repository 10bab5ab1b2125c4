// SPDX-License-Identifier: Apache-2.0

package layouts

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

// fakeGPU disturbs the node's hardware.
func (s scene) fakeGPU(args ...string) {
	s.Helper()
	if _, err := cluster.FakeGPU(s.Context(), s.name, args...); err != nil {
		s.Fatal(err)
	}
}

// divided waits until the agent reports exactly so many instances of a profile on each GPU, each a MIG device.
func (s scene) divided(profile string, want []int) {
	s.Helper()
	s.wait(fmt.Sprintf("node %s has %v × %s", s.name, want, profile), func(ctx context.Context) (bool, error) {
		var n v1alpha1.GPUNode
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: s.name}, &n); err != nil {
			return false, err
		}
		for _, g := range n.Status.GPUs {
			for _, i := range g.Instances {
				if i.UUID == "" {
					return false, nil
				}
			}
		}
		return slices.Equal(s.instances(profile), want), nil
	})
}

func TestLayoutsOfMoreThanEightGPUsComeBackAfterABoot(t *testing.T) {
	s := newScene(t, "boots", 10)
	s.pool(builders.MakePool("boots").Static("3g.40gb", 2).Rollout("10", v1alpha1.DrainWait, 0))
	all := slices.Repeat([]int{2}, 10)
	s.divided("3g.40gb", all)
	if err := cluster.KillAgent(s.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.fakeGPU("reboot")
	if err := cluster.StartAgent(s.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.rolledOut()
	s.divided("3g.40gb", all)
	s.running(s.pod("tenant", "20Gi"))
}

func TestALayoutComesBackAfterADriverWasLoadedAgain(t *testing.T) {
	s := newScene(t, "reloads", 1)
	s.pool(builders.MakePool("reloads").Static("1g.10gb", 7))
	s.fakeGPU("reboot")
	s.wait("the agent has made the instances anew", func(ctx context.Context) (bool, error) {
		shown, err := cluster.FakeGPU(ctx, s.name, "show", "--json")
		return strings.Count(shown, `"profile":"1g.10gb"`) == 7, err
	})
	s.divided("1g.10gb", []int{7})
	s.running(s.pod("tenant", "9Gi"))
}

func TestAProcessOfNoTenantIsNamedAndWaitedFor(t *testing.T) {
	s := newScene(t, "foreign", 1)
	s.pool(builders.MakePool("foreign").Static("3g.40gb", 2).Rollout("1", v1alpha1.DrainEvict, 0))
	pid := strconv.Itoa(os.Getpid())
	s.fakeGPU("attach", "--gpu", "0", "--pid", pid, "--memory", "100", "--instance", "3g.40gb:4", "--stay")
	s.layout("1g.10gb", 7)
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked, "("+pid+")")
	s.divided("3g.40gb", []int{2})
	s.fakeGPU("detach", "--pid", pid)
	s.rolledOut()
	s.divided("1g.10gb", []int{7})
}

func TestAnIdleInstanceIsKeptForTheNextTenant(t *testing.T) {
	s := newScene(t, "idle", 1)
	s.pool(builders.MakePool("idle").MIG())
	s.keepIdle(3600)
	first := s.pod("first", "9Gi")
	s.running(first)
	device := s.device(first)
	s.remove(first)
	s.divided("1g.10gb", []int{1})
	second := s.pod("second", "9Gi")
	s.running(second)
	if got := s.device(second); got != device {
		t.Errorf("the next tenant is on %s, want %s", got, device)
	}
	s.divided("1g.10gb", []int{1})
	s.remove(second)
	s.divided("1g.10gb", []int{1})
	s.keepIdle(0)
	s.divided("1g.10gb", []int{0})
}

// keepIdle changes how long the pool keeps idle instances, and waits until the agent has heard of it.
func (s scene) keepIdle(seconds int32) {
	s.Helper()
	s.edit(func(spec *v1alpha1.GPUPoolSpec) { spec.Partitioning.MIG.KeepIdleSeconds = &seconds })
	s.wait("the agent has heard of keepIdleSeconds", func(ctx context.Context) (bool, error) {
		var n v1alpha1.GPUNode
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: s.name}, &n); err != nil {
			return false, err
		}
		decisions := n.Decisions()
		return len(decisions) == 1 && decisions[0].KeepIdleSeconds == seconds && n.Status.ObservedGeneration == n.Generation, nil
	})
}
