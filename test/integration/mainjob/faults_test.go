// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

func TestANodeWhoseGPUsAnotherDriverHandsOutPublishesNothing(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "foreign-driver", Pool: "foreign-driver", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("foreign-driver").Obj())
	foreign := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign-driver-other"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "gpu.nvidia.com", NodeName: ptr.To("foreign-driver"),
			Pool:    resourceapi.ResourcePool{Name: "foreign-driver", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0"}},
		},
	}
	s.create(foreign)
	condition := s.nodeCondition("foreign-driver", v1alpha1.NodeForeignDriver, metav1.ConditionTrue, v1alpha1.ReasonForeignDriver)
	if !contains(condition.Message, "gpu.nvidia.com") {
		t.Errorf("the condition does not name the driver: %q", condition.Message)
	}
	s.wait("nothing is published", func(context.Context) (bool, error) { return len(s.published("foreign-driver")) == 0, nil })

	if err := cluster.Client.Delete(s.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.nodeCondition("foreign-driver", v1alpha1.NodeForeignDriver, metav1.ConditionFalse, "")
	s.wait("the GPU is published again", func(context.Context) (bool, error) { return len(s.published("foreign-driver")) == 1, nil })
}

func TestADevicePluginIsAForeignDriver(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "plugin", Pool: "plugin", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("plugin").Obj())
	allocatable := func(gpus string) {
		s.wait("the node's allocatable is changed", func(ctx context.Context) (bool, error) {
			var n corev1.Node
			if err := cluster.Client.Get(ctx, client.ObjectKey{Name: "plugin"}, &n); err != nil {
				return false, err
			}
			patch := client.MergeFrom(n.DeepCopy())
			n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse(gpus)
			n.Status.Capacity["nvidia.com/gpu"] = resource.MustParse(gpus)
			return true, cluster.Client.Status().Patch(ctx, &n, patch)
		})
	}
	allocatable("1")
	s.nodeCondition("plugin", v1alpha1.NodeForeignDriver, metav1.ConditionTrue, v1alpha1.ReasonForeignDriver)
	allocatable("0")
	s.nodeCondition("plugin", v1alpha1.NodeForeignDriver, metav1.ConditionFalse, "")
}

func TestTheAgentComesBackAfterAKill(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "killed", Pool: "killed", Board: "a100-80gb", GPUs: 1, MIG: true})
	s.pool(builders.MakePool("killed").MIG().Obj())
	before := s.pod(builders.MakePod("before").Pool("killed").Memory("9Gi").Obj())
	s.running(before)
	defer s.nothingAllocatedDisappears("killed")()

	if err := cluster.KillAgent(s.Context(), "killed"); err != nil {
		t.Fatal(err)
	}
	during := s.pod(builders.MakePod("during").Pool("killed").Memory("9Gi").Obj())
	if err := cluster.StartAgent(s.Context(), "killed"); err != nil {
		t.Fatal(err)
	}
	s.running(before, during)
	if got := s.instances("killed"); got != 2 {
		t.Errorf("NVML shows %d instances, want 2", got)
	}
}

func TestTheAPIServerGoesAwayAndComesBack(t *testing.T) {
	s := newSceneAlone(t)
	s.node(stack.Node{Name: "away", Pool: "away", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("away").Obj())
	before := s.pod(builders.MakePod("before").Pool("away").Memory("10Gi").Obj())
	s.running(before)

	if err := cluster.Stop(s.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Start(s.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	s.running(before)
	s.running(s.pod(builders.MakePod("after").Pool("away").Memory("10Gi").Obj()))
	s.edit("away", func(p *v1alpha1.GPUPool) {
		p.Spec.Overcommit = &v1alpha1.Overcommit{MemoryPercent: 200, ComputePercent: 100}
	})
	s.wait("the edit reaches the slices", func(context.Context) (bool, error) {
		c := s.published("away")["gpu-0"].Capacity[v1alpha1.CapacityMemory]
		return c.Value.Value() == 2*81152<<20, nil
	})
}

func TestAVanishedNodeDoesNotKeepItsPoolFromBeingDeleted(t *testing.T) {
	s := newScene(t)
	if err := cluster.AddNode(s.Context(), stack.Node{Name: "vanished", Pool: "vanished", Board: "h100-80gb", GPUs: 1}); err != nil {
		t.Fatal(err)
	}
	pool := builders.MakePool("vanished").Obj()
	s.pool(pool)
	if err := cluster.RemoveNode(s.Context(), "vanished"); err != nil {
		t.Fatal(err)
	}
	s.gone(&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "vanished"}})
	s.poolCondition("vanished", v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNodes)
	if err := cluster.Client.Delete(s.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s.gone(pool)
}

func TestAnotherManagerTakesOver(t *testing.T) {
	s := newSceneAlone(t)
	s.node(stack.Node{Name: "takeover", Pool: "takeover", Board: "h100-80gb", GPUs: 1})
	if err := cluster.Stop(s.Context(), "manager"); err != nil {
		t.Fatal(err)
	}
	pool := builders.MakePool("takeover").Obj()
	s.create(pool)
	if err := cluster.Start(s.Context(), "manager"); err != nil {
		t.Fatal(err)
	}
	s.poolCondition("takeover", v1alpha1.PoolReady, metav1.ConditionTrue, "")
}
