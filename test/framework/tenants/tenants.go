// SPDX-License-Identifier: Apache-2.0

// Package tenants makes pods on machines of a lab whose containers take memory of GPUs, and says what they could take.
package tenants

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// The images of tenants.
const (
	BusyboxImage = "sluice.dev/test/busybox:1"
	CUDAImage    = "sluice.dev/test/cuda-tenant:1"
)

// Patience is how long a pod may take to become what it should be.
const Patience = 150 * time.Second

// Idle is a container's command that waits to be ended.
func Idle() []string {
	return []string{"/bin/sh", "-c", "trap 'exit 0' TERM; while :; do /bin/sleep 0.2; done"}
}

// Pod is a tenant's pod of a pool: one container of CUDA programs that waits, with so much memory of a GPU.
func Pod(name, pool, memory string) *corev1.Pod {
	p := builders.MakePod(name).Pool(pool)
	if memory != "" {
		p = p.Memory(memory)
	}
	made := p.Obj()
	made.Spec.Containers[0].Image, made.Spec.Containers[0].Command = CUDAImage, Idle()
	return made
}

// With adds a further container, like the first, with so much memory of a GPU.
func With(p *corev1.Pod, name, memory string) *corev1.Pod {
	more := Pod(name, "", memory).Spec.Containers[0]
	more.Name = name
	p.Spec.Containers = append(p.Spec.Containers, more)
	return p
}

// Holding is a pod whose container has a claim of its own choosing.
func Holding(name, claim string) *corev1.Pod {
	p := Pod(name, "", "")
	delete(p.Labels, v1alpha1.PoolLabel)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim)}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return p
}

// Unpulled has a pod's containers take images that are there: no registry has them.
func Unpulled(p *corev1.Pod) *corev1.Pod {
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].ImagePullPolicy = corev1.PullNever
	}
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].ImagePullPolicy = corev1.PullNever
	}
	return p
}

// Create creates a pod that goes with the test.
func Create(t *testing.T, lab *machine.Lab, p *corev1.Pod) {
	t.Helper()
	if err := lab.Client.Create(t.Context(), Unpulled(p)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(t, lab, p) })
}

// Remove deletes a pod and waits until it is gone.
func Remove(t *testing.T, lab *machine.Lab, p *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	if err := client.IgnoreNotFound(lab.Client.Delete(ctx, p)); err != nil {
		t.Error(err)
		return
	}
	err := stack.Poll(ctx, "the pod "+p.Name+" is gone", func(ctx context.Context) (bool, error) {
		return apierrors.IsNotFound(lab.Client.Get(ctx, client.ObjectKeyFromObject(p), &corev1.Pod{})), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Await waits until a pod is as it should be.
func Await(t *testing.T, lab *machine.Lab, p *corev1.Pod, what string, done func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	got, err := lab.Await(ctx, p, what, done)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Run creates a pod and waits until it runs.
func Run(t *testing.T, lab *machine.Lab, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	Create(t, lab, p)
	return Await(t, lab, p, "runs", machine.Running)
}

// Again waits until a pod runs after its first container was started again.
func Again(t *testing.T, lab *machine.Lab, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	before := Restarts(p)
	return Await(t, lab, p, "runs again", func(now *corev1.Pod) bool { return Restarts(now) > before && machine.Running(now) })
}

// Restarts is how often a pod's first container has been started again.
func Restarts(p *corev1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// Claim makes a claim of a pool's class for so much memory of one GPU, which goes with the test.
func Claim(t *testing.T, lab *machine.Lab, name, pool, memory string) {
	t.Helper()
	yaml := fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s, namespace: %s}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: %s.sluice.dev
        capacity: {requests: {memory: %s}}
`, name, metav1.NamespaceDefault, pool, memory)
	if err := lab.Apply(t.Context(), yaml); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = lab.Kubectl(context.WithoutCancel(t.Context()), "delete", "resourceclaim", name, "--namespace", metav1.NamespaceDefault, "--wait=false")
	})
}
