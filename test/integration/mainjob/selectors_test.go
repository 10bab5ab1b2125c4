// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

func TestATenantThatToleratesEverythingDoesNotHoldUpADrain(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "tolerant", Pool: "tolerant", Board: "h100-80gb", GPUs: 1})
	pool := builders.MakePool("tolerant").Obj()
	s.pool(pool)
	tenant := s.pod(builders.MakePod("tenant").Pool("tolerant").Memory("10Gi").Obj())
	s.running(tenant)
	template := claimTemplate(s.namespace, "tolerant", "tolerant.sluice.dev", "10Gi")
	template.Spec.Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	s.create(template)
	early := s.pod(builders.MakePod("early").Claim("tolerant").Obj())
	s.running(early)

	if err := cluster.Client.Delete(s.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s.wait("the device is tainted", func(context.Context) (bool, error) {
		return len(s.published("tolerant")["gpu-0"].Taints) > 0, nil
	})
	late := s.pod(builders.MakePod("late").Claim("tolerant").Obj())
	s.unschedulable(late)
	s.running(tenant, early)
	s.remove(tenant, early)
	s.gone(pool)
}

// TestADeviceWithoutAttributesHarmsNobody puts a device of this driver beside the agent's that has none of its attributes.
func TestADeviceWithoutAttributesHarmsNobody(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "bare", Pool: "bare", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("bare").Mode(v1alpha1.SharingTimeSlicing).Obj())
	s.create(&resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "bare-other"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DriverName,
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"bare"}}},
			}}},
			Pool:    resourceapi.ResourcePool{Name: "a-bare-one", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0"}},
		},
	})
	first := s.pod(builders.MakePod("first").Pool("bare").Memory("70Gi").Obj())
	s.running(first)
	// The second has to look at every device; one that fails would make the scheduler give up with an error.
	second := s.pod(builders.MakePod("second").Pool("bare").Memory("70Gi").Obj())
	s.unschedulable(second)
	s.remove(first)
	s.running(second)
}

func TestANodeSelectorThatCannotBeReadTakesNothingAway(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "unreadable", Pool: "unreadable", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("unreadable").Obj())
	tenant := s.pod(builders.MakePod("tenant").Pool("unreadable").Memory("10Gi").Obj())
	s.running(tenant)

	s.edit("unreadable", func(p *v1alpha1.GPUPool) {
		p.Spec.NodeSelector.MatchLabels = map[string]string{"no key!": "x"}
	})
	condition := s.poolCondition("unreadable", v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidNodeSelector)
	if !contains(condition.Message, "no key!", "keys and values that a label can have") {
		t.Errorf("the condition does not say what to write: %q", condition.Message)
	}
	s.poolCondition("unreadable", v1alpha1.PoolDraining, metav1.ConditionFalse, "")
	if d := s.published("unreadable")["gpu-0"]; len(d.Taints) > 0 {
		t.Errorf("the device is tainted: %v", d.Taints)
	}
	s.running(tenant, s.pod(builders.MakePod("next").Pool("unreadable").Memory("10Gi").Obj()))

	s.edit("unreadable", func(p *v1alpha1.GPUPool) {
		p.Spec.NodeSelector.MatchLabels = map[string]string{builders.PoolNodeLabel: "unreadable"}
	})
	s.poolCondition("unreadable", v1alpha1.PoolReady, metav1.ConditionTrue, "")
}

func TestAHugeNodeSelectorHasAStatus(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "huge", Pool: "huge", Board: "h100-80gb", GPUs: 1})
	pool := builders.MakePool("huge").Obj()
	for i := range 3000 {
		pool.Spec.NodeSelector.MatchLabels[fmt.Sprintf("%s/%s-%d", strings.Repeat("a", 60), strings.Repeat("b", 50), i)] = strings.Repeat("c", 63)
	}
	s.create(pool)
	condition := s.poolCondition("huge", v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNodes)
	if len(condition.Message) > 1024 {
		t.Errorf("the message has %d bytes", len(condition.Message))
	}
	if err := cluster.Client.Get(s.Context(), client.ObjectKeyFromObject(pool), pool); err != nil || len(pool.Status.Conditions) < 9 {
		t.Errorf("want every condition, got %d: %v", len(pool.Status.Conditions), err)
	}
}
