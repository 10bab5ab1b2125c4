// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"slices"
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

// patience bounds every wait. A loss is believed after half a minute.
const patience = 2 * time.Minute

// ward is what one test works with: a namespace, a node and a pool, all of one name.
type ward struct {
	*testing.T
	name string
}

// newWard makes them and takes them away when the test ends. The test runs beside the others.
func newWard(t *testing.T, name string, gpus int, mig bool, pool *builders.Pool) ward {
	t.Helper()
	t.Parallel()
	w := ward{T: t, name: name}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	w.node(gpus, mig)
	w.create(pool.Obj())
	return w
}

// node adds the ward's node and removes it when the test ends.
func (w ward) node(gpus int, mig bool) {
	w.Helper()
	if err := cluster.AddNode(w.Context(), stack.Node{Name: w.name, Pool: w.name, Board: "h100-80gb", GPUs: gpus, MIG: mig}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := cluster.RemoveNode(context.Background(), w.name); err != nil {
			w.Error(err)
		}
	})
}

func (w ward) create(obj client.Object) {
	w.Helper()
	if err := cluster.Client.Create(w.Context(), obj); err != nil {
		w.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := cluster.Client.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
			w.Errorf("delete %T %s: %v", obj, obj.GetName(), err)
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			w.waitUntil(ctx, "pod "+pod.Name+" is gone", isGone(pod))
		}
	})
}

func isGone(pod *corev1.Pod) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod.DeepCopy())
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

func (w ward) wait(what string, done func(context.Context) (bool, error)) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	w.waitUntil(ctx, what, done)
}

func (w ward) waitUntil(ctx context.Context, what string, done func(context.Context) (bool, error)) {
	w.Helper()
	if err := stack.Poll(ctx, what, done); err != nil {
		w.Error(err)
		w.FailNow()
	}
}

// pod creates a pod that asks the pool for memory.
func (w ward) pod(name, memory string) *corev1.Pod {
	w.Helper()
	p := builders.MakePod(name).Pool(w.name).Memory(memory).Obj()
	p.Namespace = w.name
	w.create(p)
	return p
}

func (w ward) running(p *corev1.Pod) {
	w.Helper()
	w.wait("pod "+p.Name+" runs", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return p.Status.Phase == corev1.PodRunning, err
	})
}

// fakeGPU disturbs the node's hardware.
func (w ward) fakeGPU(args ...string) {
	w.Helper()
	if _, err := cluster.FakeGPU(w.Context(), w.name, args...); err != nil {
		w.Fatal(err)
	}
}

func (w ward) status(ctx context.Context) ([]v1alpha1.GPUStatus, error) {
	var n v1alpha1.GPUNode
	err := cluster.Client.Get(ctx, client.ObjectKey{Name: w.name}, &n)
	slices.SortFunc(n.Status.GPUs, func(a, b v1alpha1.GPUStatus) int { return int(*a.Minor - *b.Minor) })
	return n.Status.GPUs, client.IgnoreNotFound(err)
}

// is waits until a GPU's health in the status has the state and the reason.
func (w ward) is(gpu int, state v1alpha1.HealthState, reason string) {
	w.Helper()
	w.wait(fmt.Sprintf("GPU %d of node %s is %s: %s", gpu, w.name, state, reason), func(ctx context.Context) (bool, error) {
		gpus, err := w.status(ctx)
		return err == nil && len(gpus) > gpu && gpus[gpu].Health.State == state && gpus[gpu].Health.Reason == reason, err
	})
}

// tainted waits until the node's devices, all of them, have this taint and no other of health; "" for none.
func (w ward) tainted(want string) {
	w.Helper()
	w.wait(fmt.Sprintf("the devices of node %s have the taint %q", w.name, want), func(ctx context.Context) (bool, error) {
		var list resourceapi.ResourceSliceList
		if err := cluster.Client.List(ctx, &list); err != nil {
			return false, err
		}
		devices := 0
		for _, s := range list.Items {
			if s.Spec.Pool.Name != w.name || s.Spec.Driver != v1alpha1.DriverName {
				continue
			}
			for _, d := range s.Spec.Devices {
				devices++
				if healthTaint(d) != want {
					return false, nil
				}
			}
		}
		return devices > 0, nil
	})
}

func healthTaint(d resourceapi.Device) string {
	for _, t := range d.Taints {
		if strings.HasSuffix(t.Key, "/unhealthy") {
			return t.Value + ":" + string(t.Effect)
		}
	}
	return ""
}

// told waits until the pod has an event.
func (w ward) told(p *corev1.Pod, reason, says string) {
	w.Helper()
	w.wait(fmt.Sprintf("pod %s is told %s", p.Name, reason), func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		if err := cluster.Client.List(ctx, &list, client.InNamespace(w.name)); err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == p.UID && e.Reason == reason && strings.Contains(e.Message, says)
		}), nil
	})
}

// unhealthy waits until the pool's condition says so.
func (w ward) unhealthy(status metav1.ConditionStatus) {
	w.Helper()
	w.wait(fmt.Sprintf("pool %s says Unhealthy=%s", w.name, status), func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		err := cluster.Client.Get(ctx, client.ObjectKey{Name: w.name}, &p)
		return meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, v1alpha1.PoolUnhealthy, status), err
	})
}

func TestAnErrorOfTheHardwareAndItsEnd(t *testing.T) {
	w := newWard(t, "xid", 1, false, builders.MakePool("xid"))
	first := w.pod("first", "10Gi")
	w.running(first)
	w.fakeGPU("health", "--gpu", "0", "--recovery", "reset")
	w.fakeGPU("xid", "--gpu", "0", "--xid", "119")
	w.is(0, v1alpha1.HealthSuspect, v1alpha1.HealthReasonRecoveryNeeded)
	w.tainted("RecoveryNeeded:NoSchedule")
	w.told(first, "GPUSuspect", "XID 119")
	w.unhealthy(metav1.ConditionTrue)
	second := w.pod("second", "10Gi")
	w.fakeGPU("health", "--gpu", "0", "--recovery", "none")
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
	w.told(first, "GPUHealthy", "well again")
	w.unhealthy(metav1.ConditionFalse)
	w.running(second)
	w.running(first)
}

func TestErrorsOfApplicationsCondemnNoGPU(t *testing.T) {
	w := newWard(t, "apps", 1, false, builders.MakePool("apps"))
	w.running(w.pod("first", "10Gi"))
	for i := range 50 {
		w.fakeGPU("xid", "--gpu", "0", "--xid", []string{"13", "31", "43", "45", "68", "69", "94", "109", "137"}[i%9])
	}
	w.running(w.pod("second", "10Gi"))
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
}

func TestALostGPULosesItsPodsAndComesBack(t *testing.T) {
	w := newWard(t, "lost", 1, false, builders.MakePool("lost"))
	pod := w.pod("pod", "10Gi")
	w.running(pod)
	w.fakeGPU("fault", "--lost", "--gpu", "0")
	w.is(0, v1alpha1.HealthLost, v1alpha1.HealthReasonOffBus)
	w.told(pod, "GPULost", "off the bus")
	w.wait("the pod on the lost GPU is deleted", isGone(pod))
	w.fakeGPU("fault", "--found", "--gpu", "0")
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
	w.running(w.pod("next", "10Gi"))
}

// TestALostGPUStaysLostOverARestart has a new agent apply another decision, which it does with its first looks.
func TestALostGPUStaysLostOverARestart(t *testing.T) {
	w := newWard(t, "stayslost", 1, false, builders.MakePool("stayslost"))
	w.running(w.pod("pod", "10Gi"))
	w.fakeGPU("fault", "--lost", "--gpu", "0")
	w.is(0, v1alpha1.HealthLost, v1alpha1.HealthReasonOffBus)
	w.tainted("OffBus:NoExecute")
	if err := cluster.KillAgent(t.Context(), w.name); err != nil {
		t.Fatal(err)
	}
	w.wait("the pool is changed", func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: w.name}, &p); err != nil {
			return false, err
		}
		p.Spec.Overcommit = &v1alpha1.Overcommit{MemoryPercent: 200, ComputePercent: 100}
		err := cluster.Client.Update(ctx, &p)
		return err == nil, ignoreConflict(err)
	})
	if err := cluster.StartAgent(t.Context(), w.name); err != nil {
		t.Fatal(err)
	}
	w.wait("the new agent has applied the change", func(ctx context.Context) (bool, error) {
		var n v1alpha1.GPUNode
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: w.name}, &n); err != nil {
			return false, err
		}
		if got := n.Status.GPUs[0].Health.State; got != v1alpha1.HealthLost {
			return false, fmt.Errorf("the GPU is %s since the agent was started again", got)
		}
		return n.Status.ObservedGeneration == n.Generation && n.Decisions()[0].MemoryPercent == 200, nil
	})
	w.tainted("OffBus:NoExecute")
	w.fakeGPU("fault", "--found", "--gpu", "0")
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func TestAGPUThatHangsLeavesTheOthersAlone(t *testing.T) {
	w := newWard(t, "hangs", 2, false, builders.MakePool("hangs"))
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.fakeGPU("fault", "--hang", "--gpu", "0")
	w.is(0, v1alpha1.HealthSuspect, v1alpha1.HealthReasonNVMLHangs)
	w.is(1, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.running(w.pod("other", "10Gi"))
	w.fakeGPU("fault", "--clear")
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
}

func TestAllInstancesOfASickGPUAreSick(t *testing.T) {
	w := newWard(t, "instances", 1, true, builders.MakePool("instances").Static("3g.40gb", 2))
	w.wait("the pool is ready", func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		err := cluster.Client.Get(ctx, client.ObjectKey{Name: w.name}, &p)
		return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolReady), err
	})
	pod := w.pod("pod", "20Gi")
	w.running(pod)
	w.fakeGPU("health", "--gpu", "0", "--remap", "pending")
	w.is(0, v1alpha1.HealthSuspect, v1alpha1.HealthReasonRowRemapPending)
	w.tainted("RowRemapPending:NoSchedule")
	w.running(pod)
	w.fakeGPU("health", "--gpu", "0", "--remap", "none")
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
}

func TestAVirtualGPUIsNotDivided(t *testing.T) {
	w := newWard(t, "virtual", 1, false, builders.MakePool("virtual").MIG())
	w.fakeGPU("health", "--gpu", "0", "--virtual", "unlicensed")
	w.wait("the virtual GPU is refused, and its licence told", func(ctx context.Context) (bool, error) {
		gpus, err := w.status(ctx)
		return err == nil && len(gpus) == 1 && gpus[0].Virtual.Licence == v1alpha1.LicenceUnlicensed &&
			gpus[0].Reason == v1alpha1.ReasonMIGNotSupported && strings.Contains(gpus[0].Message, "virtual GPU"), err
	})
}
