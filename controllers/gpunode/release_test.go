// SPDX-License-Identifier: Apache-2.0

package gpunode_test

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/test/builders"
)

// protected is a GPUNode of two GPUs as the manager has decided it for pool p.
func protected() *v1alpha1.GPUNode {
	pool := builders.MakePool("p").Obj()
	n := builders.MakeGPUNode("n", 2).
		Decided(assign.Decision(pool, builders.UUID("n", 0)), assign.Decision(pool, builders.UUID("n", 1))).Obj()
	controllerutil.AddFinalizer(n, v1alpha1.NodeFinalizer)
	return n
}

func (w *world) remove(object client.Object) {
	w.t.Helper()
	if err := w.c.Delete(w.t.Context(), object); err != nil {
		w.t.Fatalf("deleting: %v", err)
	}
}

// gone says whether the GPUNode is.
func (w *world) gone() bool {
	w.t.Helper()
	err := w.c.Get(w.t.Context(), types.NamespacedName{Name: "n"}, &v1alpha1.GPUNode{})
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return apierrors.IsNotFound(err)
}

func TestNoDecisionStandsWithoutTheFinalizer(t *testing.T) {
	unprotected := protected()
	unprotected.Finalizers = nil
	tests := []struct {
		name string
		node *v1alpha1.GPUNode
		pool string
		want bool
	}{
		{name: "the first decision comes with it", node: builders.MakeGPUNode("n", 2).Obj(), pool: "p", want: true},
		{name: "a decision that was made without it gets it", node: unprotected, pool: "p", want: true},
		{name: "a node that no pool selects needs none", node: builders.MakeGPUNode("n", 2).Obj(), pool: "q"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t, nil, tc.node, builders.MakePool(tc.pool).Obj())
			w.reconcile()
			if got := controllerutil.ContainsFinalizer(w.node(), v1alpha1.NodeFinalizer); got != tc.want {
				t.Errorf("finalizer: want %v, got %v", tc.want, got)
			}
		})
	}
}

func TestADeletedGPUNodeWithoutTenantsGoes(t *testing.T) {
	w := start(t, nil, protected(), builders.MakePool("p").Obj())
	w.remove(w.node())
	w.reconcile()
	if !w.gone() {
		t.Error("the GPUNode stays although nothing is allocated")
	}
}

func TestADeletedGPUNodeKeepsItsDecisionsWhileATenantRuns(t *testing.T) {
	older := builders.MakePool("aa-older").Nodes("p").Obj()
	claim := builders.Allocated("tenant", "n", "gpu-0", "10Gi")
	w := start(t, nil, protected(), older, builders.MakePool("p").Obj(), claim)
	pool := &v1alpha1.GPUPool{}
	if err := w.c.Get(t.Context(), types.NamespacedName{Name: "p"}, pool); err != nil {
		t.Fatal(err)
	}
	w.remove(w.node())
	w.reconcile()
	w.want("p Software", "p Software NotSelected") // the older pool selects the free GPU too
	w.remove(pool)
	w.reconcile()
	w.want("p Software PoolDeleted", "p Software PoolDeleted")

	w.remove(claim)
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.reconcile()
	if !w.gone() {
		t.Error("the GPUNode stays although its tenant is gone")
	}
}

func TestADeletedGPUNodeWaitsForATenantThatTheCacheDoesNotKnow(t *testing.T) {
	live := fakeClient(t, builders.Allocated("tenant", "n", "gpu-0", "10Gi"))
	w := start(t, live, protected(), builders.MakePool("p").Obj())
	w.remove(w.node())
	if again := w.reconcile(); again == 0 {
		t.Error("want to look again: the claim's release may be no event")
	}
	w.want("p Software", "p Software")
}

func TestADeletedGPUNodeTakesNoNewGPU(t *testing.T) {
	n := protected()
	n.Spec.GPUs = n.Spec.GPUs[:1]
	w := start(t, nil, n, builders.MakePool("p").Obj(), builders.Allocated("tenant", "n", "gpu-0", "10Gi"))
	w.remove(w.node())
	w.reconcile()
	w.want("p Software")
}

func TestAGPUNodeGoesWithItsNode(t *testing.T) {
	tenant := builders.Allocated("tenant", "n", "gpu-0", "10Gi")
	t.Run("the Node is gone, and with it what was allocated there", func(t *testing.T) {
		w := start(t, nil, protected(), builders.MakePool("p").Obj(), tenant.DeepCopy())
		w.remove(builders.NodeIn("n", "p"))
		w.remove(w.node())
		w.reconcile()
		if !w.gone() {
			t.Error("the GPUNode stays although its Node is gone")
		}
	})
	t.Run("the cache does not know the Node yet, the API server does", func(t *testing.T) {
		w := start(t, fakeClient(t, builders.NodeIn("n", "p")), protected(), builders.MakePool("p").Obj(), tenant.DeepCopy())
		w.remove(builders.NodeIn("n", "p"))
		w.remove(w.node())
		w.reconcile()
		w.want("p Software", "p Software")
	})
}

// TestADecisionThatIsLostIsMadeAgain takes the finalizer off by force: the GPUNode comes back as a new one, with what its
// agent goes on publishing.
func TestADecisionThatIsLostIsMadeAgain(t *testing.T) {
	older := builders.MakePool("aa-older").Nodes("p").Obj()
	n := protected()
	n.Spec, n.Finalizers = nil, nil
	w := start(t, nil, n, older, builders.MakePool("p").Obj(), builders.Allocated("tenant", "n", "gpu-0", "10Gi"))
	w.reconcile()
	w.want("p Software", "p Software NotSelected")
}
