// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// patience bounds every wait; a wait that succeeds is far shorter.
const patience = 60 * time.Second

// scene is what one test works with: a namespace, pools and nodes of its own.
type scene struct {
	*testing.T
	namespace string
}

// newScene makes the namespace, and takes everything away when the test ends. The test runs beside the others.
func newScene(t *testing.T) scene {
	t.Helper()
	t.Parallel()
	return newSceneAlone(t)
}

// newSceneAlone is for a test that others would notice, or that would notice others.
func newSceneAlone(t *testing.T) scene {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", "-"))
	name = strings.Trim(name[:min(len(name), 60)], "-_")
	s := scene{T: t, namespace: name}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return s
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
			return // pools wait for pods, and pods are removed later than they are: cleanups run backwards
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

// node adds a simulated node and removes it when the test ends.
func (s scene) node(n stack.Node) {
	s.Helper()
	if err := cluster.AddNode(s.Context(), n); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := cluster.RemoveNode(context.Background(), n.Name); err != nil {
			s.Error(err)
		}
	})
}

// pool creates a pool and waits until it is ready.
func (s scene) pool(p *v1alpha1.GPUPool) {
	s.Helper()
	s.create(p)
	s.poolCondition(p.Name, v1alpha1.PoolReady, metav1.ConditionTrue, "")
}

// pod creates a pod in the scene's namespace.
func (s scene) pod(p *corev1.Pod) *corev1.Pod {
	s.Helper()
	p.Namespace = s.namespace
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

// unschedulable waits until the scheduler has said that the pod fits nowhere.
func (s scene) unschedulable(p *corev1.Pod) {
	s.Helper()
	s.wait("pod "+p.Name+" waits for the scheduler", func(ctx context.Context) (bool, error) {
		if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return false, err
		}
		if p.Status.Phase == corev1.PodRunning {
			return false, fmt.Errorf("pod %s runs, it should not", p.Name)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "cannot allocate all claims") {
				return true, nil
			}
		}
		return false, nil
	})
}

// remove deletes pods and waits until they are gone.
func (s scene) remove(pods ...*corev1.Pod) {
	s.Helper()
	for _, p := range pods {
		if err := cluster.Client.Delete(s.Context(), p); client.IgnoreNotFound(err) != nil {
			s.Fatalf("delete pod %s: %v", p.Name, err)
		}
	}
	for _, p := range pods {
		s.wait("pod "+p.Name+" is gone", func(ctx context.Context) (bool, error) {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p.DeepCopy())
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
}

// results are the devices that the pod's claims were given, of this driver.
func (s scene) results(p *corev1.Pod) []resourceapi.DeviceRequestAllocationResult {
	s.Helper()
	if err := cluster.Client.Get(s.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, c := range p.Status.ResourceClaimStatuses {
		names = append(names, *c.ResourceClaimName)
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		names = append(names, e.ResourceClaimName)
	}
	var results []resourceapi.DeviceRequestAllocationResult
	for _, name := range names {
		var claim resourceapi.ResourceClaim
		if err := cluster.Client.Get(s.Context(), client.ObjectKey{Namespace: p.Namespace, Name: name}, &claim); err != nil {
			s.Fatal(err)
		}
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == v1alpha1.DriverName {
				results = append(results, r)
			}
		}
	}
	return results
}

// device is the name of the pod's one device.
func (s scene) device(p *corev1.Pod) string {
	s.Helper()
	results := s.results(p)
	if len(results) != 1 {
		s.Fatalf("pod %s holds %d devices, want one", p.Name, len(results))
	}
	return results[0].Device
}

// poolCondition waits until a pool's condition has the status and, unless "", the reason; it returns the condition.
func (s scene) poolCondition(pool, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	s.Helper()
	var got *metav1.Condition
	s.wait(fmt.Sprintf("pool %s says %s=%s %s", pool, condition, status, reason), func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: pool}, &p); err != nil {
			return false, err
		}
		got = meta.FindStatusCondition(p.Status.Conditions, condition)
		return p.Status.ObservedGeneration == p.Generation && got != nil && got.Status == status && (reason == "" || got.Reason == reason), nil
	})
	return *got
}

// nodeCondition waits until a GPUNode's condition has the status and, unless "", the reason; it returns the condition.
func (s scene) nodeCondition(node, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	s.Helper()
	var got *metav1.Condition
	s.wait(fmt.Sprintf("node %s says %s=%s %s", node, condition, status, reason), func(ctx context.Context) (bool, error) {
		var n v1alpha1.GPUNode
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		got = meta.FindStatusCondition(n.Status.Conditions, condition)
		return got != nil && got.Status == status && (reason == "" || got.Reason == reason), nil
	})
	return *got
}

// published are the devices that a node publishes, by name.
func (s scene) published(node string) map[string]resourceapi.Device {
	s.Helper()
	var list resourceapi.ResourceSliceList
	if err := cluster.Client.List(s.Context(), &list); err != nil {
		s.Fatal(err)
	}
	devices := map[string]resourceapi.Device{}
	for _, slice := range list.Items {
		if slice.Spec.Driver == v1alpha1.DriverName && slice.Spec.Pool.Name == node {
			for _, d := range slice.Spec.Devices {
				devices[d.Name] = d
			}
		}
	}
	return devices
}

// event waits for an event about the pod with the reason and returns its note.
func (s scene) event(p *corev1.Pod, reason string) string {
	s.Helper()
	var note string
	s.wait("pod "+p.Name+" has an event "+reason, func(ctx context.Context) (bool, error) {
		var list eventsv1.EventList
		if err := cluster.Client.List(ctx, &list, client.InNamespace(p.Namespace)); err != nil {
			return false, err
		}
		i := slices.IndexFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == p.Name && e.Reason == reason })
		if i >= 0 {
			note = list.Items[i].Note
		}
		return i >= 0, nil
	})
	return note
}

// instances are the MIG instances that a node's hardware has.
func (s scene) instances(node string) int {
	s.Helper()
	shown, err := cluster.FakeGPU(s.Context(), node, "show", "--json")
	if err != nil {
		s.Fatal(err)
	}
	return strings.Count(shown, `"MIG-`)
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
