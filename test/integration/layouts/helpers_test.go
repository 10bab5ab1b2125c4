// SPDX-License-Identifier: Apache-2.0

package layouts

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// patience bounds every wait; a wait that succeeds is far shorter.
const patience = 90 * time.Second

// scene is what one test works with: a namespace, a node and a pool, all of one name.
type scene struct {
	*testing.T
	name string
}

// newScene makes a namespace and a node of H100 with MIG mode on, and takes them away when the test ends. The test runs
// beside the others.
func newScene(t *testing.T, name string, gpus int) scene {
	t.Helper()
	t.Parallel()
	return newSceneAlone(t, name, gpus)
}

// newSceneAlone is for a test that others would notice.
func newSceneAlone(t *testing.T, name string, gpus int) scene {
	t.Helper()
	s := scene{T: t, name: name}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	s.node(gpus)
	return s
}

// node adds the scene's node and removes it when the test ends.
func (s scene) node(gpus int) {
	s.Helper()
	if err := cluster.AddNode(s.Context(), stack.Node{Name: s.name, Pool: s.name, Board: "h100-80gb", GPUs: gpus, MIG: true}); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := cluster.RemoveNode(context.Background(), s.name); err != nil {
			s.Error(err)
		}
	})
}

// create creates an object and removes it when the test ends.
func (s scene) create(obj client.Object) {
	s.Helper()
	if err := cluster.Client.Create(s.Context(), obj); err != nil {
		s.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := cluster.Client.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
			s.Errorf("delete %T %s: %v", obj, obj.GetName(), err)
		}
		if _, pod := obj.(*corev1.Pod); !pod {
			return // pools wait for pods, and pods are removed before they are: cleanups run backwards
		}
		err := stack.Poll(ctx, "pod "+obj.GetName()+" is gone", func(ctx context.Context) (bool, error) {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			s.Error(err)
		}
	})
}

// pool creates the scene's pool and waits until it is ready.
func (s scene) pool(p *builders.Pool) {
	s.Helper()
	s.create(p.Obj())
	s.condition(v1alpha1.PoolReady, metav1.ConditionTrue, "")
}

// edit changes the pool's spec.
func (s scene) edit(change func(*v1alpha1.GPUPoolSpec)) {
	s.Helper()
	s.wait("pool "+s.name+" is changed", func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: s.name}, &p); err != nil {
			return false, err
		}
		change(&p.Spec)
		err := cluster.Client.Update(ctx, &p)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// layout has every GPU divided into count instances of a profile.
func (s scene) layout(profile string, count int32) {
	s.Helper()
	want := builders.MakePool(s.name).Static(profile, count).Obj().Spec.Partitioning
	s.edit(func(spec *v1alpha1.GPUPoolSpec) { spec.Partitioning = want })
}

// pod creates a pod that asks the scene's pool for memory.
func (s scene) pod(name, memory string) *corev1.Pod {
	s.Helper()
	p := builders.MakePod(name).Pool(s.name).Memory(memory).Obj()
	p.Namespace = s.name
	p.Labels["app"] = "tenant"
	s.create(p)
	return p
}

// running waits until the pods run.
func (s scene) running(pods ...*corev1.Pod) {
	s.Helper()
	for _, p := range pods {
		s.wait("pod "+p.Name+" runs", func(ctx context.Context) (bool, error) {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
			return p.Status.Phase == corev1.PodRunning, err
		})
	}
}

// gone waits until a pod is gone.
func (s scene) gone(p *corev1.Pod) {
	s.Helper()
	s.wait("pod "+p.Name+" is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p.DeepCopy())
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// remove deletes a pod and waits until it is gone.
func (s scene) remove(p *corev1.Pod) {
	s.Helper()
	if err := cluster.Client.Delete(s.Context(), p); client.IgnoreNotFound(err) != nil {
		s.Fatalf("delete pod %s: %v", p.Name, err)
	}
	s.gone(p)
}

// device is the name of the pod's one device.
func (s scene) device(p *corev1.Pod) string {
	s.Helper()
	if err := cluster.Client.Get(s.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		s.Fatal(err)
	}
	for _, status := range p.Status.ResourceClaimStatuses {
		var claim resourceapi.ResourceClaim
		if err := cluster.Client.Get(s.Context(), client.ObjectKey{Namespace: p.Namespace, Name: *status.ResourceClaimName}, &claim); err != nil {
			s.Fatal(err)
		}
		if claim.Status.Allocation != nil && len(claim.Status.Allocation.Devices.Results) == 1 {
			return claim.Status.Allocation.Devices.Results[0].Device
		}
	}
	s.Fatalf("pod %s does not hold one device", p.Name)
	return ""
}

// condition waits until the pool's condition has the status and, unless "", the reason, and says so much.
func (s scene) condition(condition string, status metav1.ConditionStatus, reason string, says ...string) {
	s.Helper()
	what := fmt.Sprintf("pool %s says %s=%s %s %q", s.name, condition, status, reason, says)
	s.wait(what, func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: s.name}, &p); err != nil {
			return false, err
		}
		got := meta.FindStatusCondition(p.Status.Conditions, condition)
		met := p.Status.ObservedGeneration == p.Generation && got != nil && got.Status == status && (reason == "" || got.Reason == reason)
		for _, text := range says {
			met = met && strings.Contains(got.Message, text)
		}
		return met, nil
	})
}

// rolledOut waits until every GPU has the form that the pool wants, and is offered so.
func (s scene) rolledOut() {
	s.Helper()
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionFalse, v1alpha1.ReasonRolledOut)
	s.condition(v1alpha1.PoolReady, metav1.ConditionTrue, "")
}

// instances are how many MIG instances of a profile the agent reports on each GPU, by minor.
func (s scene) instances(profile string) []int {
	s.Helper()
	var n v1alpha1.GPUNode
	if err := cluster.Client.Get(s.Context(), client.ObjectKey{Name: s.name}, &n); err != nil {
		s.Fatal(err)
	}
	counts := make([]int, len(n.Status.GPUs))
	for _, g := range n.Status.GPUs {
		for _, i := range g.Instances {
			if i.Profile == profile {
				counts[*g.Minor]++
			}
		}
	}
	return counts
}

// uuid is the UUID of a GPU of the scene's node.
func (s scene) uuid(minor int32) string {
	s.Helper()
	var n v1alpha1.GPUNode
	if err := cluster.Client.Get(s.Context(), client.ObjectKey{Name: s.name}, &n); err != nil {
		s.Fatal(err)
	}
	for _, g := range n.Status.GPUs {
		if *g.Minor == minor {
			return g.UUID
		}
	}
	s.Fatalf("node %s has no GPU %d", s.name, minor)
	return ""
}

// wait polls until done says so.
func (s scene) wait(what string, done func(context.Context) (bool, error)) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		s.Fatal(err)
	}
}
