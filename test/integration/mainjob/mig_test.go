// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const oneSeventh = "nvidia.com/mig-1g.10gb"

// Tests that ask for a profile by its resource name run alone: the name means every pool's instances.

func TestSevenInstancesFitOnOneA100AndTheEighthWaits(t *testing.T) {
	s := newSceneAlone(t)
	s.node(stack.Node{Name: "sevenths", Pool: "sevenths", Board: "a100-80gb", GPUs: 1, MIG: true})
	s.pool(builders.MakePool("sevenths").MIG().Obj())

	var pods []*corev1.Pod
	for i := range 7 {
		pods = append(pods, s.pod(builders.MakePod(fmt.Sprintf("p%d", i)).Limit(oneSeventh, "1").Obj()))
	}
	s.running(pods...)
	eighth := s.pod(builders.MakePod("p7").Limit(oneSeventh, "1").Obj())
	s.unschedulable(eighth)
	if got := s.instances("sevenths"); got != 7 {
		t.Errorf("NVML shows %d instances, want 7", got)
	}
	s.remove(eighth)
	s.remove(pods...)
	if got := s.instances("sevenths"); got != 0 {
		t.Errorf("the pods are gone, NVML still shows %d instances", got)
	}
	s.migMode("sevenths", v1alpha1.MIGEnabled)
}

func TestPackingKeepsLargeProfilesPlaceable(t *testing.T) {
	cases := []struct {
		name string
		ask  []string
	}{
		{"three-small-then-large", []string{"1g.10gb", "1g.10gb", "1g.10gb", "3g.40gb"}},
		{"large-then-four-small", []string{"3g.40gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newSceneAlone(t)
			s.node(stack.Node{Name: tc.name, Pool: tc.name, Board: "a100-80gb", GPUs: 1, MIG: true})
			s.pool(builders.MakePool(tc.name).MIG().Obj())
			for i, profile := range tc.ask {
				s.running(s.pod(builders.MakePod(fmt.Sprintf("p%d", i)).Limit("nvidia.com/mig-"+profile, "1").Obj()))
			}
		})
	}
}

func TestAnAmountTakesTheSmallestProfileThatHoldsIt(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "amounts", Pool: "amounts", Board: "a100-80gb", GPUs: 1, MIG: true})
	s.pool(builders.MakePool("amounts").MIG().Obj())

	nine := s.pod(builders.MakePod("nine").Pool("amounts").Memory("9Gi").Obj())
	ten := s.pod(builders.MakePod("ten").Pool("amounts").Memory("10Gi").Obj())
	s.running(nine, ten)
	if got := s.device(nine); !strings.Contains(got, "-mig-1g10gb-") {
		t.Errorf("9Gi took %s, want a 1g.10gb", got)
	}
	if got := s.device(ten); !strings.Contains(got, "-mig-1g20gb-") {
		t.Errorf("10Gi took %s, want a 1g.20gb: a 1g.10gb has 9.5 GiB", got)
	}
	if note := s.event(ten, "LargerProfile"); !contains(note, "10Gi", "1g.10gb", "9.5Gi", "1g.20gb") {
		t.Errorf("the event does not say why 10Gi took a larger profile: %q", note)
	}
}

// Hopper and newer change MIG mode without a reset, so the agent does it, and leaves the mode as found.
func TestMIGModeGoesOnAndOffWithTheInstancesOnHopper(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "hopper", Pool: "hopper", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("hopper").MIG().Obj())
	s.migMode("hopper", v1alpha1.MIGDisabled)

	pod := s.pod(builders.MakePod("one").Pool("hopper").Memory("9Gi").Obj())
	s.running(pod)
	s.migMode("hopper", v1alpha1.MIGEnabled)
	s.remove(pod)
	s.migMode("hopper", v1alpha1.MIGDisabled)
}

func TestAmpereWithMIGModeOffPublishesNothingAndSaysSo(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "modeoff", Pool: "modeoff", Board: "a100-80gb", GPUs: 1})
	s.create(builders.MakePool("modeoff").MIG().Obj())

	condition := s.nodeCondition("modeoff", v1alpha1.NodeMIGModeOff, metav1.ConditionTrue, v1alpha1.ReasonMIGModeOff)
	if !contains(condition.Message, "nvidia-smi") {
		t.Errorf("the condition does not say what to do: %q", condition.Message)
	}
	if got := s.published("modeoff"); len(got) != 0 {
		t.Errorf("%d devices are published, want none", len(got))
	}
	s.poolCondition("modeoff", v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonGPUsNotPublished)
}
