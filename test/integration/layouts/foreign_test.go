// SPDX-License-Identifier: Apache-2.0

package layouts

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

// nodeEvent waits until there is an event on the scene's GPUNode that says so.
func (s scene) nodeEvent(reason, says string) {
	s.Helper()
	s.wait(fmt.Sprintf("GPUNode %s has an event %s that says %q", s.name, reason, says), func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		if err := cluster.Client.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return false, err
		}
		for _, e := range list.Items {
			of := e.InvolvedObject
			if of.Kind == "GPUNode" && of.Name == s.name && e.Reason == reason && strings.Contains(e.Message, says) {
				return true, nil
			}
		}
		return false, nil
	})
}

func TestWhatIsChangedByHandIsRepairedAndTold(t *testing.T) {
	s := newScene(t, "byhand", 1)
	s.pool(builders.MakePool("byhand").Static("3g.40gb", 2))
	s.fakeGPU("mig", "--gpu", "0", "--destroy", "3g.40gb:4")
	s.nodeEvent("ForeignInstancesRepaired", "somebody destroyed 3g.40gb at 4")
	s.divided("3g.40gb", []int{2})
	s.condition(v1alpha1.PoolReady, metav1.ConditionTrue, "")
	s.running(s.pod("a", "20Gi"), s.pod("b", "20Gi"))
}

func TestWhatIsChangedByHandAndUsedIsWaitedFor(t *testing.T) {
	s := newScene(t, "usedbyhand", 1)
	s.pool(builders.MakePool("usedbyhand").Static("3g.40gb", 2))
	tenant := s.pod("tenant", "20Gi")
	s.running(tenant)
	mine, other := "3g.40gb:0", "3g.40gb:4"
	if strings.HasSuffix(s.device(tenant), "-4") {
		mine, other = other, mine
	}
	start := other[len(other)-1:]
	if err := cluster.KillAgent(s.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	s.fakeGPU("mig", "--gpu", "0", "--destroy", other)
	s.fakeGPU("mig", "--gpu", "0", "--make", "1g.10gb:"+start)
	s.fakeGPU("attach", "--gpu", "0", "--pid", pid, "--memory", "100", "--instance", "1g.10gb:"+start, "--stay")
	if err := cluster.StartAgent(s.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.nodeEvent(v1alpha1.ReasonForeignInstances, "("+pid+")")
	s.divided("1g.10gb", []int{1})
	s.running(tenant)

	s.fakeGPU("detach", "--pid", pid)
	s.nodeEvent("ForeignInstancesRepaired", "somebody made 1g.10gb at "+start)
	s.divided("3g.40gb", []int{2})
	s.running(tenant, s.pod("next", "20Gi"))
	if shown, err := cluster.FakeGPU(s.Context(), s.name, "show"); err != nil || !strings.Contains(shown, mine) {
		t.Errorf("the tenant's instance %s: %v\n%s", mine, err, shown)
	}
}

// A GPU whose instances come and go with claims has none that somebody made by hand: what nobody uses is destroyed.
func TestAnInstanceMadeByHandOnADynamicGPU(t *testing.T) {
	s := newScene(t, "dynbyhand", 1)
	s.pool(builders.MakePool("dynbyhand").MIG())
	s.fakeGPU("mig", "--gpu", "0", "--make", "3g.40gb:4")
	s.gone3g()
	s.running(s.pod("tenant", "60Gi"))
}

// gone3g waits until the node's hardware has no instance of 3g.40gb.
func (s scene) gone3g() {
	s.Helper()
	s.wait("the instance is gone", func(ctx context.Context) (bool, error) {
		shown, err := cluster.FakeGPU(ctx, s.name, "show")
		return !strings.Contains(shown, "3g.40gb:"), err
	})
}

// One that is used stays, and no tenant is sent to a GPU on which its place may be taken.
func TestAnInstanceMadeByHandAndUsedOnADynamicGPU(t *testing.T) {
	s := newScene(t, "dynusedbyhand", 2)
	s.pool(builders.MakePool("dynusedbyhand").MIG())
	if err := cluster.KillAgent(s.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	s.fakeGPU("mig", "--gpu", "0", "--make", "3g.40gb:0")
	s.fakeGPU("attach", "--gpu", "0", "--pid", pid, "--memory", "100", "--instance", "3g.40gb:0", "--stay")
	if err := cluster.StartAgent(s.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.nodeEvent(v1alpha1.ReasonForeignInstances, "("+pid+")")
	s.condition(v1alpha1.PoolReady, metav1.ConditionFalse, "")
	whole := s.pod("whole", "60Gi")
	s.running(whole)
	if device := s.device(whole); !strings.HasPrefix(device, "gpu-1-") {
		t.Errorf("the tenant is on %s, where its place is taken", device)
	}
	next := s.pod("next", "60Gi")

	s.fakeGPU("detach", "--pid", pid)
	s.gone3g()
	s.nodeEvent("ForeignInstancesRepaired", "nobody uses what somebody else made any more")
	s.condition(v1alpha1.PoolReady, metav1.ConditionTrue, "")
	s.running(next)
}
