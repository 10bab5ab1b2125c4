// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// edit changes a pool's spec.
func (s scene) edit(pool string, change func(*v1alpha1.GPUPool)) {
	s.Helper()
	s.wait("pool "+pool+" is changed", func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, &p); err != nil {
			return false, err
		}
		change(&p)
		err := cluster.Client.Update(ctx, &p)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// gone waits until an object is gone.
func (s scene) gone(obj client.Object) {
	s.Helper()
	s.wait("object "+obj.GetName()+" is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func TestADeletedPoolWaitsForItsTenantsAndNamesThem(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "deleted", Pool: "deleted", Board: "h100-80gb", GPUs: 1})
	pool := builders.MakePool("deleted").Obj()
	s.pool(pool)
	tenant := s.pod(builders.MakePod("tenant").Pool("deleted").Memory("10Gi").Obj())
	s.running(tenant)
	defer s.nothingAllocatedDisappears("deleted")()

	if err := cluster.Client.Delete(s.Context(), pool); err != nil {
		t.Fatal(err)
	}
	condition := s.poolCondition("deleted", v1alpha1.PoolDraining, metav1.ConditionTrue, v1alpha1.ReasonTenantsRemain)
	if want := s.namespace + "/tenant"; !contains(condition.Message, want) {
		t.Errorf("the condition does not name %s: %q", want, condition.Message)
	}
	s.wait("the device is tainted", func(context.Context) (bool, error) {
		return len(s.published("deleted")["gpu-0"].Taints) > 0, nil
	})
	s.running(tenant)

	s.remove(tenant)
	s.gone(pool)
	s.gone(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "deleted.sluice.dev"}})
	s.wait("the GPU is no longer published", func(context.Context) (bool, error) {
		return len(s.published("deleted")) == 0, nil
	})
}

func TestAPoolCanBeCreatedAgain(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "again", Pool: "again", Board: "h100-80gb", GPUs: 1})
	first := builders.MakePool("again").Obj()
	s.pool(first)
	if err := cluster.Client.Delete(s.Context(), first); err != nil {
		t.Fatal(err)
	}
	s.gone(first)
	s.pool(builders.MakePool("again").Obj())
	s.running(s.pod(builders.MakePod("tenant").Pool("again").Memory("10Gi").Obj()))
}

func TestAnotherModeWaitsForTheTenants(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "mode", Pool: "mode", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("mode").Obj())
	tenant := s.pod(builders.MakePod("tenant").Pool("mode").Memory("10Gi").Obj())
	s.running(tenant)
	defer s.nothingAllocatedDisappears("mode")()

	s.edit("mode", func(p *v1alpha1.GPUPool) { p.Spec.Sharing.Mode = v1alpha1.SharingExclusive })
	s.poolCondition("mode", v1alpha1.PoolDraining, metav1.ConditionTrue, v1alpha1.ReasonTenantsRemain)
	s.running(tenant)
	s.remove(tenant)
	s.wait("the GPU is published exclusive", func(context.Context) (bool, error) {
		d, found := s.published("mode")["gpu-0"]
		return found && d.AllowMultipleAllocations == nil && len(d.Taints) == 0, nil
	})
	s.running(s.pod(builders.MakePod("whole").Pool("mode").Limit(v1alpha1.ResourceGPU, "1").Obj()))
}

func TestARatioChangesAtOnceAndTakesNothingAway(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "shrink", Pool: "shrink", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("shrink").Overcommit(200, 100).Obj())
	first := s.pod(builders.MakePod("first").Pool("shrink").Memory("70Gi").Obj())
	second := s.pod(builders.MakePod("second").Pool("shrink").Memory("70Gi").Obj())
	s.running(first, second)
	defer s.nothingAllocatedDisappears("shrink")()

	s.edit("shrink", func(p *v1alpha1.GPUPool) { p.Spec.Overcommit.MemoryPercent = 100 })
	s.wait("the GPU publishes 100 %", func(context.Context) (bool, error) {
		c := s.published("shrink")["gpu-0"].Capacity[v1alpha1.CapacityMemory]
		return c.Value.Value() == 81152<<20, nil
	})
	s.unschedulable(s.pod(builders.MakePod("third").Pool("shrink").Memory("1Gi").Obj()))
	s.running(first, second)
}

func TestTheIncumbentPoolKeepsAGPUUntilNothingIsAllocated(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "contested", Pool: "contested", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("zz-older").Nodes("contested").Obj())
	tenant := s.pod(builders.MakePod("tenant").Pool("zz-older").Memory("10Gi").Obj())
	s.running(tenant)
	defer s.nothingAllocatedDisappears("contested")()

	s.create(builders.MakePool("aa-newer").Nodes("contested").Obj())
	condition := s.poolCondition("aa-newer", v1alpha1.PoolContested, metav1.ConditionTrue, v1alpha1.ReasonHeldByOtherPool)
	if !contains(condition.Message, "zz-older") {
		t.Errorf("the loser does not say who holds the GPU: %q", condition.Message)
	}
	// The holder lets go of the node: the GPU changes hands when its tenant has left, not before.
	s.edit("zz-older", func(p *v1alpha1.GPUPool) {
		p.Spec.NodeSelector.MatchLabels[builders.PoolNodeLabel] = "elsewhere"
	})
	s.poolCondition("zz-older", v1alpha1.PoolDraining, metav1.ConditionTrue, v1alpha1.ReasonTenantsRemain)
	s.running(tenant)
	s.remove(tenant)
	s.poolCondition("aa-newer", v1alpha1.PoolReady, metav1.ConditionTrue, "")
	s.running(s.pod(builders.MakePod("next").Pool("aa-newer").Memory("10Gi").Obj()))
}

func TestAForeignClassIsAConditionAndIsLeftAlone(t *testing.T) {
	s := newSceneAlone(t)
	s.node(stack.Node{Name: "foreign-class", Pool: "foreign-class", Board: "a100-80gb", GPUs: 1, MIG: true})
	name := "nvidia.com/mig-2g.20gb"
	foreign := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "somebody-else"}}
	foreign.Spec.ExtendedResourceName = &name
	s.create(foreign)
	s.create(builders.MakePool("foreign-class").MIG().Obj())
	condition := s.poolCondition("foreign-class", v1alpha1.PoolResourceNameConflict, metav1.ConditionTrue, v1alpha1.ReasonForeignClass)
	if !contains(condition.Message, "somebody-else", name) {
		t.Errorf("the condition names neither class nor resource: %q", condition.Message)
	}
	if err := cluster.Client.Get(s.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil || *foreign.Spec.ExtendedResourceName != name {
		t.Errorf("somebody else's class was touched: %v", err)
	}
	if err := cluster.Client.Delete(s.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.poolCondition("foreign-class", v1alpha1.PoolResourceNameConflict, metav1.ConditionFalse, "")
}
