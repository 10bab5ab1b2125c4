// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// gpuNode reads a GPUNode.
func (s scene) gpuNode(name string) *v1alpha1.GPUNode {
	s.Helper()
	n := &v1alpha1.GPUNode{}
	if err := cluster.Client.Get(s.Context(), client.ObjectKey{Name: name}, n); err != nil {
		s.Fatal(err)
	}
	return n
}

// replaced waits until another GPUNode has taken the place of the one with the UID, and has a decision.
func (s scene) replaced(name string, uid types.UID) {
	s.Helper()
	s.wait("GPUNode "+name+" is a new one", func(ctx context.Context) (bool, error) {
		n := &v1alpha1.GPUNode{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return n.UID != uid && len(n.Decisions()) > 0, nil
	})
}

// tenantUnderAnOlderPool is a node whose GPU a younger pool holds with a tenant, while an older one waits for it.
func (s scene) tenantUnderAnOlderPool(name string) (younger *v1alpha1.GPUPool, tenant *corev1.Pod) {
	s.Helper()
	s.node(stack.Node{Name: name, Pool: name, Board: "h100-80gb", GPUs: 1})
	older := name + "-older"
	s.create(builders.MakePool(older).Nodes("elsewhere").Obj())
	s.wait("the other pool is younger by the second", func(ctx context.Context) (bool, error) {
		younger = builders.MakePool(name).Obj()
		err := cluster.Client.Create(ctx, younger, client.DryRunAll)
		p := &v1alpha1.GPUPool{}
		if getErr := cluster.Client.Get(ctx, client.ObjectKey{Name: older}, p); getErr != nil {
			return false, getErr
		}
		return p.CreationTimestamp.Before(&younger.CreationTimestamp), err
	})
	younger = builders.MakePool(name).Obj()
	s.pool(younger)
	tenant = s.pod(builders.MakePod("tenant").Pool(name).Memory("10Gi").Obj())
	s.running(tenant)
	s.edit(older, func(p *v1alpha1.GPUPool) { p.Spec.NodeSelector.MatchLabels[builders.PoolNodeLabel] = name })
	s.poolCondition(older, v1alpha1.PoolContested, metav1.ConditionTrue, v1alpha1.ReasonHeldByOtherPool)
	return younger, tenant
}

func TestADeletedGPUNodeForgetsNeitherTenantNorPool(t *testing.T) {
	s := newScene(t)
	younger, tenant := s.tenantUnderAnOlderPool("forgets")
	defer s.nothingAllocatedDisappears("forgets")()

	before := s.gpuNode("forgets")
	if err := cluster.Client.Delete(s.Context(), before); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Delete(s.Context(), younger); err != nil {
		t.Fatal(err)
	}
	condition := s.poolCondition("forgets", v1alpha1.PoolDraining, metav1.ConditionTrue, v1alpha1.ReasonTenantsRemain)
	if want := s.namespace + "/tenant"; !contains(condition.Message, want) {
		t.Errorf("the condition does not name %s: %q", want, condition.Message)
	}
	s.wait("the device is tainted", func(context.Context) (bool, error) {
		return len(s.published("forgets")["gpu-0"].Taints) > 0, nil
	})
	s.running(tenant)
	after := s.gpuNode("forgets")
	if after.UID != before.UID || len(after.Decisions()) != 1 || after.Decisions()[0].Pool != "forgets" {
		t.Errorf("the GPUNode did not wait for the tenant: %+v", after.Decisions())
	}

	s.remove(tenant)
	s.replaced("forgets", before.UID)
	s.gone(younger)
	s.poolCondition("forgets-older", v1alpha1.PoolReady, metav1.ConditionTrue, "")
}

// TestAGPUNodeThatIsTornAwayComesBackWithItsTenants takes the finalizer off by hand.
func TestAGPUNodeThatIsTornAwayComesBackWithItsTenants(t *testing.T) {
	s := newScene(t)
	_, tenant := s.tenantUnderAnOlderPool("torn")
	defer s.nothingAllocatedDisappears("torn")()

	before := s.gpuNode("torn")
	if err := cluster.Client.Delete(s.Context(), before); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := cluster.Client.Patch(s.Context(), before.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	s.replaced("torn", before.UID)
	if d := s.gpuNode("torn").Decisions()[0]; d.Pool != "torn" {
		t.Errorf("the GPU of a tenant was given to pool %s", d.Pool)
	}
	s.running(tenant)
	s.remove(tenant)
	s.poolCondition("torn-older", v1alpha1.PoolReady, metav1.ConditionTrue, "")
}

func TestADeletedGPUNodeWithoutTenantsComesBack(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "comesback", Pool: "comesback", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("comesback").Obj())
	before := s.gpuNode("comesback")
	if err := cluster.Client.Delete(s.Context(), before); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	s.replaced("comesback", before.UID)
	s.running(s.pod(builders.MakePod("tenant").Pool("comesback").Memory("10Gi").Obj()))
}
