// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// The images of tenants.
const (
	busyboxImage = "sluice.dev/test/busybox:1"
	cudaImage    = "sluice.dev/test/cuda-tenant:1"
)

// patience is how long a pod may take to become what it should be.
const patience = 90 * time.Second

const (
	mebi        = 1 << 20
	chunk       = 64 * mebi
	outOfMemory = 2
)

// idle is a container's command that waits to be ended.
func idle() []string {
	return []string{"/bin/sh", "-c", "trap 'exit 0' TERM; while :; do /bin/sleep 0.2; done"}
}

// pod is a tenant's pod on a machine: one container of CUDA programs that waits, with so much memory of a GPU.
func pod(name, on, memory string) *corev1.Pod {
	p := builders.MakePod(name).Pool(on)
	if memory != "" {
		p = p.Memory(memory)
	}
	made := p.Obj()
	made.Spec.Containers[0].Image, made.Spec.Containers[0].Command = cudaImage, idle()
	return made
}

// with adds a further container, like the first, with so much memory of a GPU.
func with(p *corev1.Pod, name, memory string) *corev1.Pod {
	more := pod(name, "", memory).Spec.Containers[0]
	more.Name = name
	p.Spec.Containers = append(p.Spec.Containers, more)
	return p
}

// create creates a pod that goes with the test.
func create(t *testing.T, p *corev1.Pod) {
	t.Helper()
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].ImagePullPolicy = corev1.PullNever
	}
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].ImagePullPolicy = corev1.PullNever
	}
	if err := lab.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, p) })
}

func remove(t *testing.T, p *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
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

// await waits until a pod is as it should be.
func await(t *testing.T, p *corev1.Pod, what string, done func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := lab.Await(ctx, p, what, done)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// run creates a pod and waits until it runs.
func run(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	create(t, p)
	return await(t, p, "runs", machine.Running)
}

// outcome is what a CUDA program tells of the memory that it could take.
type outcome struct {
	Chunks int
	Error  int
	Failed string
	Total  uint64
}

// take runs a CUDA program in a container, by a command of which the program is the last word, and returns what it could take
// before it was refused.
func take(t *testing.T, p *corev1.Pod, container string, command ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got outcome
	var last error
	// Right after its start kubelet does not know its pods yet: a command that did not run is repeated.
	err := stack.Poll(ctx, strings.Join(command, " ")+" says what it took", func(ctx context.Context) (bool, error) {
		var out string
		out, last = lab.Exec(ctx, p, container, append(slices.Clone(command), "--exit")...)
		return json.Unmarshal([]byte(out), &got) == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
	return got
}

// hold starts a CUDA program in a pod's main container that takes so many chunks and keeps them, and returns when it has them.
func hold(t *testing.T, p *corev1.Pod, chunks int) {
	t.Helper()
	script := fmt.Sprintf("/bin/tenant --most %d >/tmp/held 2>&1 & while ! /bin/cat /tmp/held | /bin/grep -q chunks; do /bin/sleep 0.05; done", chunks)
	if out, err := lab.Exec(t.Context(), p, "main", "/bin/sh", "-c", "/bin/mkdir -p /tmp; "+script); err != nil {
		t.Fatalf("holding memory in %s: %v\n%s", p.Name, err, out)
	}
}

// fits is the outcome of a program in a share of so much, beside so many others with a context each and so many chunks in all.
func fits(limit uint64, others, chunks int) outcome {
	left := limit - uint64(1+others)*shares.ContextBytes - uint64(chunks)*chunk
	return outcome{Chunks: int(left / chunk), Error: outOfMemory, Total: limit}
}

// claim is a claim of a pool's class for so much memory of one GPU, which goes with the test.
func claim(t *testing.T, name, pool, memory string) {
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

// holding is a pod whose container has a claim of its own choosing.
func holding(name, claim string) *corev1.Pod {
	p := pod(name, "", "")
	delete(p.Labels, v1alpha1.PoolLabel)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim)}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return p
}

// restarts is how often a pod's first container has been started again.
func restarts(p *corev1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// again waits until a pod runs after its first container was started again.
func again(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	before := restarts(p)
	return await(t, p, "runs again", func(now *corev1.Pod) bool { return restarts(now) > before && machine.Running(now) })
}
