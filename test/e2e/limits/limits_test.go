// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	// patience is how long things may take to become what they should be.
	patience = 90 * time.Second
	gibi     = 1 << 30
	chunk    = 64 << 20
	// contextBytes is what the fake driver counts for a context.
	contextBytes = 518 << 20
	// outOfMemory is CUDA's error of a program that is refused.
	outOfMemory = 2
)

// on runs a test on the machine of each backend.
func on(t *testing.T, test func(t *testing.T, backend string)) {
	t.Helper()
	if lab == nil {
		t.Skip("/sys/fs/cgroup is not of cgroup v2, by which alone the driver holds limits")
	}
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) { test(t, backend) })
	}
}

// tenant runs a pod whose containers have so much memory of a machine's GPU each, by their names.
func tenant(t *testing.T, name, pool, memory string, more ...string) *corev1.Pod {
	t.Helper()
	made := builders.MakePod(name + "-" + pool).Pool(pool).Memory(memory)
	for _, container := range more {
		made = made.Container(container).Memory(memory)
	}
	return runs(t, made.Obj())
}

// runs has a pod run whose containers wait for what they are told to do.
func runs(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = "sluice.dev/test/cuda-tenant:1", corev1.PullNever
		c.Command = []string{"/bin/sh", "-c", "trap 'exit 0' TERM; while :; do /bin/sleep 0.2; done"}
	}
	if err := lab.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gone(t, p) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := lab.Await(ctx, p, "runs", machine.Running)
	if err != nil {
		t.Fatal(err)
	}
	// Right after its start kubelet does not know its pods yet.
	eventually(t, "a command runs in "+p.Name, func(ctx context.Context) bool {
		_, err := lab.Exec(ctx, p, "main", "/bin/sh", "-c", "exit 0")
		return err == nil
	})
	return p
}

// gone deletes a pod and waits until it is no more.
func gone(t *testing.T, p *corev1.Pod) {
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

func eventually(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, func(ctx context.Context) (bool, error) { return done(ctx), nil }); err != nil {
		t.Fatal(err)
	}
}

// outcome is what a CUDA program says that it could take.
type outcome struct {
	Chunks, Error int
	Total         uint64
}

// takes runs a script in a container whose last command becomes a CUDA program, and returns what that says.
func takes(t *testing.T, p *corev1.Pod, container, script string) outcome {
	t.Helper()
	out, err := lab.Exec(t.Context(), p, container, "/bin/sh", "-c", "export PATH=/bin B=/bin/busybox; $B mkdir -p /tmp\n"+script)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var got outcome
	if jsonErr := json.Unmarshal([]byte(lines[len(lines)-1]), &got); jsonErr != nil {
		t.Fatalf("in %s of %s: %v: %s", container, p.Name, err, out)
	}
	return got
}

// bounded checks what a program could take, of a container's limit.
func bounded(t *testing.T, got outcome, limit uint64, chunks int) {
	t.Helper()
	if want := (outcome{Chunks: chunks, Error: outOfMemory, Total: limit}); got != want {
		t.Errorf("the program takes %+v, want %+v", got, want)
	}
}

// room is how many chunks a limit of 2 GiB has beside so many contexts, and so many chunks of others.
func room(contexts, others int) int {
	return int((2*gibi-uint64(contexts)*contextBytes)/chunk) - others
}

// limited are the cgroups that the driver limits on a machine, and to how much.
func limited(t *testing.T, backend string) (hard map[string]uint64, reserved []string) {
	t.Helper()
	out, err := lab.FakeGPU(t.Context(), backend, "show", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Limits []struct {
			Cgroup     string
			Soft, Hard uint64
		}
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatal(err)
	}
	hard = map[string]uint64{}
	for _, l := range shown.Limits {
		hard[l.Cgroup] = l.Hard
		if l.Soft > 0 {
			reserved = append(reserved, l.Cgroup)
		}
	}
	return hard, reserved
}

func TestTheNodeSaysThatTheDriverHolds(t *testing.T) {
	on(t, func(t *testing.T, backend string) {
		t.Helper()
		node := &v1alpha1.GPUNode{}
		eventually(t, "the driver holds on "+backend, func(ctx context.Context) bool {
			err := lab.Client.Get(ctx, client.ObjectKey{Name: backend}, node)
			return err == nil && len(node.Status.GPUs) == 1 &&
				node.Status.GPUs[0].MemoryLimits.HeldBy == v1alpha1.MemoryLimitsDriver
		})
		if got := node.Status.GPUs[0].MemoryLimits.Backend; string(got) != backend {
			t.Errorf("the backend is %q, want %q", got, backend)
		}
		slices := &resourceapi.ResourceSliceList{}
		if err := lab.Client.List(t.Context(), slices); err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, s := range slices.Items {
			if s.Spec.Driver != v1alpha1.DriverName || s.Spec.NodeName == nil || *s.Spec.NodeName != backend {
				continue
			}
			for _, d := range s.Spec.Devices {
				if a := d.Attributes["memoryLimits"]; a.StringValue != nil && *a.StringValue == string(v1alpha1.MemoryLimitsDriver) {
					said++
				}
			}
		}
		if said != 1 {
			t.Errorf("%d devices say that the driver holds, want 1", said)
		}
	})
}

// TestTheDriverRefuses has programs take what they can in ways that the library does not know of.
func TestTheDriverRefuses(t *testing.T) {
	on(t, func(t *testing.T, backend string) {
		t.Helper()
		p := tenant(t, "refused", backend, "2Gi")
		for name, script := range map[string]string{
			"a program with the library": "exec tenant --exit",
			"a static program":           "exec bypass --exit",
			"one in a user namespace":    "exec $B unshare -U -r -m bypass --exit",
			"one in another root": `$B mkdir -p /run/fakegpu/bin; cp /bin/bypass /run/fakegpu/bin/
FAKEGPU_STATE=/state exec chroot /run/fakegpu /bin/bypass --exit`,
			"one with a loader of its own": `$B sed 's|/etc/ld.so.preload|/etc/ld.so.nothing|' /lib64/ld-linux-x86-64.so.2 >/tmp/loader
$B chmod 755 /tmp/loader && exec /tmp/loader /bin/tenant --exit`,
		} {
			t.Run(name, func(t *testing.T) {
				got := takes(t, p, "main", script)
				if name == "a program with the library" {
					// The library charges what contexts may cost at most until that was measured, and refuses before the driver does.
					if most := room(1, 0); got.Chunks > most || got.Chunks < most-2 || got.Error != outOfMemory || got.Total != 2*gibi {
						t.Errorf("the program takes %+v, want about %d", got, most)
					}
					return
				}
				bounded(t, got, 2*gibi, room(1, 0))
			})
		}
		hard, reserved := limited(t, backend)
		if len(hard) == 0 || len(reserved) == 0 {
			t.Errorf("the driver limits %v and guarantees to %v", hard, reserved)
		}
		gone(t, p)
		eventually(t, "nothing is guaranteed on "+backend, func(context.Context) bool {
			_, reserved := limited(t, backend)
			return len(reserved) == 0
		})
	})
}

// TestContainersOfOneShare has two containers of a pod use one claim past the library. Where limits nest, the pod's holds both
// together; where they do not, each container's holds it alone.
func TestContainersOfOneShare(t *testing.T) {
	on(t, func(t *testing.T, backend string) {
		t.Helper()
		name := "common-" + backend
		claim(t, name, backend, "2Gi")
		p := builders.MakePod(name).Container("other").Obj()
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		}
		p = runs(t, p)
		const taken = 4
		held := takes(t, p, "other", fmt.Sprintf(`bypass --most %d >/tmp/took 2>&1 &
i=0; while [ $i -lt 200 ] && ! grep -q error /tmp/took; do i=$((i+1)); sleep 0.05; done; cat /tmp/took`, taken))
		if held.Chunks != taken {
			t.Fatalf("the first program takes %+v", held)
		}
		want := map[string]int{"dmem": room(2, taken), "misc": room(1, 0)}[backend]
		bounded(t, takes(t, p, "main", "exec bypass --exit"), 2*gibi, want)
	})
}

func TestContainersHaveLimitsOfTheirOwn(t *testing.T) {
	on(t, func(t *testing.T, backend string) {
		t.Helper()
		p := tenant(t, "own", backend, "2Gi", "other")
		for _, container := range []string{"main", "other"} {
			bounded(t, takes(t, p, container, "exec bypass --exit"), 2*gibi, room(1, 0))
		}
	})
}

// claim makes a claim of a pool's class for so much memory, which goes with the test.
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
