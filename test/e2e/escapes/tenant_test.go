// SPDX-License-Identifier: Apache-2.0

package escapes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	image = "sluice.dev/test/cuda-tenant:1"
	// patience is how long a pod may take to become what it should be.
	patience = 90 * time.Second
	gibi     = 1 << 30
	chunk    = 64 << 20
	// outOfMemory is CUDA's error of a program that is refused.
	outOfMemory = 2
)

// shell begins every script: the tenants' image has busybox, and not all of its tools by name.
const shell = "export PATH=/bin B=/bin/busybox; $B mkdir -p /tmp; limits=$(echo /run/sluice/*/0/limits); export limits\n"

// tenant runs a pod with a container main that has so much memory of the GPU, and a container other with 2 GiB where that is
// wanted too. Its containers wait for what they are told to do.
func tenant(t *testing.T, name, memory string, other bool) *corev1.Pod {
	t.Helper()
	made := builders.MakePod(name).Pool(node).Memory(memory)
	if other {
		made = made.Container("other").Memory("2Gi")
	}
	p := made.Obj()
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = image, corev1.PullNever
		c.Command = []string{"/bin/sh", "-c", "trap 'exit 0' TERM; while :; do /bin/sleep 0.2; done"}
	}
	if err := lab.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, p) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := lab.Await(ctx, p, "runs", machine.Running)
	if err != nil {
		t.Fatal(err)
	}
	// Right after its start kubelet does not know its pods yet.
	err = stack.Poll(ctx, "a command runs in "+name, func(ctx context.Context) (bool, error) {
		_, err := lab.Exec(ctx, p, "main", "/bin/sh", "-c", "exit 0")
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
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

// does runs a shell script in a container and returns the last line that it prints.
func does(t *testing.T, p *corev1.Pod, container, script string) string {
	t.Helper()
	out, err := lab.Exec(t.Context(), p, container, "/bin/sh", "-c", shell+script)
	if err != nil {
		t.Fatalf("in %s of %s: %v: %s", container, p.Name, err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// program is what a CUDA program says of itself.
type program struct {
	// PID is its number in the container.
	PID, Chunks, Error int
	// At is when it had its first chunk, in milliseconds.
	At int64
	// Context is what a context is charged in its share.
	Context uint64
}

func (p program) begun() time.Time { return time.UnixMilli(p.At) }

// start starts a program in a container by a script whose last command becomes a CUDA program that takes $most chunks. It
// returns when it has that many.
func start(t *testing.T, p *corev1.Pod, container, script string, most int) program {
	t.Helper()
	text := does(t, p, container, fmt.Sprintf(`export most=%d
(%s
) >/tmp/took 2>&1 &
i=0; while [ $i -lt 200 ] && ! grep -q error /tmp/took; do i=$((i+1)); sleep 0.05; done; cat /tmp/took`, most, script))
	var got program
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Chunks != most {
		t.Fatalf("a program in %s of %s takes %d chunks: %v: %s", container, p.Name, most, err, text)
	}
	return got
}

// runs is true while a program that was started in a container is there.
func (p program) runs(t *testing.T, pod *corev1.Pod, container string) bool {
	t.Helper()
	return does(t, pod, container, fmt.Sprintf("kill -0 %d 2>/dev/null && echo yes || echo no", p.PID)) == "yes"
}

// fills checks that a program in a container is refused exactly what its share no longer has, beside so many programs with so
// many chunks in all.
func fills(t *testing.T, p *corev1.Pod, container string, limit uint64, others, chunks int) {
	t.Helper()
	text := does(t, p, container, "exec tenant --exit")
	var got program
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("a program in %s of %s says %q: %v", container, p.Name, text, err)
	}
	left := limit - uint64(1+others)*got.Context - uint64(chunks)*chunk
	if want := int(left / chunk); got.Chunks != want || got.Error != outOfMemory || got.Context == 0 {
		t.Errorf("a program in %s of %s takes %d chunks of 64 MiB until error %d, want %d", container, p.Name, got.Chunks, got.Error, want)
	}
}
