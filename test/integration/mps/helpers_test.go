// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/fakemps"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// patience bounds every wait; a wait that succeeds is far shorter.
const patience = 90 * time.Second

// scene is what one test works with: a namespace, a node and a pool, all of one name.
type scene struct {
	*testing.T
	name string
	// dir has a directory for each device that is shared by MPS.
	dir string
}

// newScene makes a namespace, a node of one GPU with a driver that has MPS, and a pool. The test runs beside the others.
func newScene(t *testing.T, name string, mig bool, pool *builders.Pool) *scene {
	t.Helper()
	t.Parallel()
	s := &scene{T: t, name: name}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	node := stack.Node{Name: name, Pool: name, Board: "h100-80gb", GPUs: 1, MIG: mig, Prepare: fakemps.InstallIn}
	if err := cluster.AddNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.dir, err = cluster.MPSDir(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.removeNode)
	s.create(pool.Obj())
	return s
}

// removeNode takes the node away, and what a test that failed has left of MPS on it.
func (s *scene) removeNode() {
	for _, pid := range s.daemons() {
		s.Errorf("the MPS daemon %d is left", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if err := cluster.RemoveNode(context.Background(), s.name); err != nil {
		s.Error(err)
	}
}

// create creates an object and removes it when the test ends; a pod is waited for, and so is what it had.
func (s *scene) create(obj client.Object) {
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
		if pod, ok := obj.(*corev1.Pod); ok {
			if err := stack.Poll(ctx, "pod "+pod.Name+" is gone", isGone(pod)); err != nil {
				s.Error(err)
			}
		}
	})
}

func isGone(pod *corev1.Pod) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod.DeepCopy())
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// wait polls until done says so.
func (s *scene) wait(what string, done func(context.Context) (bool, error)) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		s.Fatal(err)
	}
}

// pod creates a pod that asks the pool for memory and, unless "", compute.
func (s *scene) pod(name, memory, compute string) *corev1.Pod {
	s.Helper()
	made := builders.MakePod(name).Pool(s.name).Memory(memory)
	if compute != "" {
		made = made.Compute(compute)
	}
	p := made.Obj()
	p.Namespace = s.name
	s.create(p)
	return p
}

func (s *scene) running(pods ...*corev1.Pod) {
	s.Helper()
	for _, p := range pods {
		s.wait("pod "+p.Name+" runs", func(ctx context.Context) (bool, error) {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
			return p.Status.Phase == corev1.PodRunning, err
		})
	}
}

// remove deletes a pod and waits until it is gone.
func (s *scene) remove(p *corev1.Pod) {
	s.Helper()
	if err := cluster.Client.Delete(s.Context(), p); err != nil {
		s.Fatalf("delete pod %s: %v", p.Name, err)
	}
	s.wait("pod "+p.Name+" is gone", isGone(p))
}

// mode changes how the pool shares its GPUs.
func (s *scene) mode(mode v1alpha1.SharingMode) {
	s.Helper()
	s.wait("pool "+s.name+" is changed", func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: s.name}, &p); err != nil {
			return false, err
		}
		p.Spec.Sharing.Mode = mode
		err := cluster.Client.Update(ctx, &p)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// pool waits until the pool's condition has the status and the reason, and says so much.
func (s *scene) pool(condition string, status metav1.ConditionStatus, reason string, says ...string) {
	s.Helper()
	s.wait(fmt.Sprintf("pool %s says %s=%s %s %q", s.name, condition, status, reason, says), func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: s.name}, &p); err != nil {
			return false, err
		}
		got := meta.FindStatusCondition(p.Status.Conditions, condition)
		return p.Status.ObservedGeneration == p.Generation && got != nil && got.Status == status && got.Reason == reason &&
			containsAll(got.Message, says), nil
	})
}

// draining waits until the node's devices take no new tenants.
func (s *scene) draining() {
	s.Helper()
	s.wait("the devices of node "+s.name+" have a taint", func(ctx context.Context) (bool, error) {
		var list resourceapi.ResourceSliceList
		if err := cluster.Client.List(ctx, &list); err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.Items, func(slice resourceapi.ResourceSlice) bool {
			return slice.Spec.Pool.Name == s.name && slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool { return len(d.Taints) > 0 })
		}), nil
	})
}

// serving waits until the node's condition MPSServing has the reason, and says so much.
func (s *scene) serving(reason string, says ...string) {
	s.Helper()
	s.wait(fmt.Sprintf("node %s says MPSServing %s %q", s.name, reason, says), func(ctx context.Context) (bool, error) {
		var n v1alpha1.GPUNode
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: s.name}, &n); err != nil {
			return false, err
		}
		got := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeMPSServing)
		return got != nil && got.Reason == reason && containsAll(got.Message, says), nil
	})
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// told waits until the pod has an event that says so.
func (s *scene) told(p *corev1.Pod, reason, says string) {
	s.Helper()
	s.wait(fmt.Sprintf("pod %s is told %s: %s", p.Name, reason, says), func(ctx context.Context) (bool, error) {
		return s.hears(ctx, p, reason, says)
	})
}

func (s *scene) hears(ctx context.Context, p *corev1.Pod, reason, says string) (bool, error) {
	var list corev1.EventList
	if err := cluster.Client.List(ctx, &list, client.InNamespace(s.name)); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.UID == p.UID && e.Reason == reason && strings.Contains(e.Message, says)
	}), nil
}

// fakeGPU disturbs the node's hardware.
func (s *scene) fakeGPU(args ...string) {
	s.Helper()
	if _, err := cluster.FakeGPU(s.Context(), s.name, args...); err != nil {
		s.Fatal(err)
	}
}

// daemons are the PIDs of the node's MPS daemons, whatever the agent knows of them.
func (s *scene) daemons() []int {
	s.Helper()
	pids, err := fakemps.Daemons(s.dir)
	if err != nil {
		s.Fatal(err)
	}
	return pids
}

// daemon waits until the node has exactly one MPS daemon, other than the given ones, that is recorded.
func (s *scene) daemon(others ...int) (pid int) {
	s.Helper()
	s.wait("node "+s.name+" has one MPS daemon", func(context.Context) (bool, error) {
		pids := s.daemons()
		if len(pids) != 1 || slices.Contains(others, pids[0]) || len(s.pipes()) != 1 {
			return false, nil
		}
		pid = pids[0]
		data, err := os.ReadFile(filepath.Join(filepath.Dir(s.pipes()[0]), "daemon.json"))
		return err == nil && strings.Contains(string(data), `"pid":`+strconv.Itoa(pid)+","), nil
	})
	return pid
}

// noDaemon waits until nothing of MPS is left on the node.
func (s *scene) noDaemon() {
	s.Helper()
	s.wait("node "+s.name+" has nothing of MPS", func(context.Context) (bool, error) {
		return len(s.daemons()) == 0 && len(s.pipes()) == 0, nil
	})
}

// pipes are the pipe directories of the node's devices.
func (s *scene) pipes() []string {
	s.Helper()
	paths, err := filepath.Glob(filepath.Join(s.dir, "*", "pipe"))
	if err != nil {
		s.Fatal(err)
	}
	return paths
}

// process starts a process on the GPU that uses the one pipe directory of the node, as CUDA does in a container.
func (s *scene) process() *fakemps.Client {
	s.Helper()
	program := fakemps.Program(filepath.Join(cluster.Dir, "nodes", s.name, "driver"))
	c := fakemps.Connect(s, program, s.pipes()[0], uint32(os.Getuid()))
	c.Server(s)
	s.onGPU(c.PID)
	return c
}

// onGPU has NVML list a process until it ends.
func (s *scene) onGPU(pid int) {
	s.Helper()
	s.fakeGPU("attach", "--gpu", "0", "--pid", strconv.Itoa(pid), "--memory", "100")
}

// plain starts a process that knows nothing of MPS, on the GPU.
func (s *scene) plain() *fakemps.Client {
	s.Helper()
	program := fakemps.Program(filepath.Join(cluster.Dir, "nodes", s.name, "driver"))
	c := fakemps.Connect(s, program, filepath.Join(s.TempDir(), "nowhere"), uint32(os.Getuid()))
	if got := c.Server(s); got != "plain" {
		s.Fatalf("a process without MPS got server %s", got)
	}
	s.onGPU(c.PID)
	return c
}

// environment is what the container of a running pod got.
func (s *scene) environment(p *corev1.Pod) []string {
	s.Helper()
	data, err := os.ReadFile(filepath.Join(cluster.Dir, "nodes", s.name, "pods", string(p.UID)+".json"))
	if err != nil {
		s.Fatal(err)
	}
	var got struct {
		Containers []struct{ Env []string }
	}
	if err := json.Unmarshal(data, &got); err != nil {
		s.Fatal(err)
	}
	if len(got.Containers) != 1 {
		s.Fatalf("pod %s has %d containers: %s", p.Name, len(got.Containers), data)
	}
	return slices.DeleteFunc(got.Containers[0].Env, func(v string) bool { return !strings.HasPrefix(v, "CUDA_MPS_") })
}

// command runs a command of the control program against the node's one daemon.
func (s *scene) command(command string) {
	s.Helper()
	program := fakemps.Program(filepath.Join(cluster.Dir, "nodes", s.name, "driver"))
	fakemps.Command(s, program, s.pipes()[0], command)
}
