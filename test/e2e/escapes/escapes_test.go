// SPDX-License-Identifier: Apache-2.0

package escapes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// static is a script that runs the program that has the driver in itself, and no loader.
const static = "exec bypass --most $most"

// ways are the ways round the library that an ordinary container leaves to its root, as scripts that run the tenant's program
// in that way, and what that process is called then.
//
// The first one needs that a container may make user namespaces. Kubelet runs containers without a seccomp profile unless it or
// the pod says otherwise, so it may; with the profile RuntimeDefault it may not, and the other three work all the same.
var ways = []struct{ name, script, process string }{
	{name: "userns", process: "tenant", script: `touch /tmp/none
exec $B unshare -U -r -m sh -c '/bin/mount -o bind /tmp/none /etc/ld.so.preload && /bin/mount -t tmpfs none /run/sluice && exec tenant --most $most'`},
	// The fake GPU's state stands for what is behind the device nodes. It is a mount, so the new root is made around it.
	{name: "chroot", process: "tenant", script: `root=/run/fakegpu; libs=$root/lib/x86_64-linux-gnu
$B mkdir -p $root/bin $root/dev $root/lib64 $libs
cp /bin/tenant $root/bin/ && cp /lib64/ld-linux-x86-64.so.2 $root/lib64/ && cp /lib/x86_64-linux-gnu/libc.so.6 $libs/
cp -L /usr/lib64/libcuda.so.1 $libs/ && mknod $root/dev/nvidia0 c 195 0 && mknod $root/dev/nvidiactl c 195 255
export FAKEGPU_STATE=/state; exec chroot $root /bin/tenant --most $most`},
	{name: "loader", process: "loader", script: `$B sed 's|/etc/ld.so.preload|/etc/ld.so.nothing|' /lib64/ld-linux-x86-64.so.2 >/tmp/loader
$B chmod 755 /tmp/loader && exec /tmp/loader /bin/tenant --most $most`},
	{name: "static", process: "bypass", script: static},
}

// TestProgramsPastTheLibrary has one neighbour stand by while others get past the library on its GPU.
func TestProgramsPastTheLibrary(t *testing.T) {
	beside := newNeighbour(t)
	t.Run("is reported, and killed once the pool says so", reportedThenKilled)
	beside.untouched(t)
	t.Run("every way is found", everyWay)
	beside.untouched(t)
	t.Run("is evicted", evicted)
	beside.untouched(t)
	t.Run("a spoilt ledger is its own share's loss", func(t *testing.T) { spoilt(t, beside) })
	beside.untouched(t)
}

func reportedThenKilled(t *testing.T) {
	p := tenant(t, "past", "2Gi", true)
	other := start(t, p, "other", "exec tenant --most $most", 4)
	wild := start(t, p, "main", static, above)
	if text, _ := told(t, p, v1alpha1.ReasonOverLimit, wild.begun()); !strings.Contains(text, "bypass (") {
		t.Errorf("the event does not name the process: %s", text)
	}
	within(t, "the status of the GPUNode has the violation", func(context.Context) bool {
		v := violated(t, p)
		return v != nil && v.Reason == v1alpha1.ReasonOverLimit && v.Action == v1alpha1.ViolationReport
	})
	condition := meta.FindStatusCondition(gpuNode(t).Status.Conditions, v1alpha1.NodeLimitsViolated)
	if condition == nil || condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, "default/past") {
		t.Errorf("the condition says %+v", condition)
	}
	if got := metric(t, `sluice_agent_violations{reason="OverLimit"}`); got != 1 {
		t.Errorf("the metric counts %v violations, want 1", got)
	}
	if !wild.runs(t, p, "main") {
		t.Error("the process is gone, and the pool said Report")
	}
	says(t, v1alpha1.ViolationKill)
	said := time.Now()
	within(t, "the process is killed", func(context.Context) bool { return !wild.runs(t, p, "main") })
	t.Logf("killed %.1f s after the pool said so", time.Since(said).Seconds())
	told(t, p, reasonKilled, said)
	within(t, "the violation is over", func(context.Context) bool { return violated(t, p) == nil })
	if !other.runs(t, p, "other") {
		t.Error("a program of another share of the pod is gone")
	}
	fills(t, p, "other", 2*gibi, 1, 4)
	fills(t, p, "main", 2*gibi, 0, 0)
	standing(t, p)
}

func everyWay(t *testing.T) {
	says(t, v1alpha1.ViolationKill)
	within(t, "the node knows what the pool says", func(context.Context) bool {
		return decided(t) == v1alpha1.ViolationKill
	})
	for _, way := range ways {
		for reason, chunks := range map[string]int{v1alpha1.ReasonOverLimit: above, v1alpha1.ReasonUnregisteredProcess: below} {
			t.Run(fmt.Sprintf("%s %s", way.name, reason), func(t *testing.T) {
				t.Parallel()
				p := tenant(t, strings.ToLower(way.name+"-"+reason), "2Gi", true)
				other := start(t, p, "other", "exec tenant --most $most", 4)
				wild := start(t, p, "main", way.script, chunks)
				if text, _ := told(t, p, reason, wild.begun()); !strings.Contains(text, way.process+" (") {
					t.Errorf("the event does not name the process: %s", text)
				}
				told(t, p, reasonKilled, wild.begun())
				within(t, "the process is killed", func(context.Context) bool { return !wild.runs(t, p, "main") })
				if !other.runs(t, p, "other") {
					t.Error("a program of another share of the pod is gone")
				}
				standing(t, p)
			})
		}
	}
}

// decided is what the node's agent has been told to do about violations.
func decided(t *testing.T) v1alpha1.ViolationAction {
	t.Helper()
	for _, gpu := range gpuNode(t).Spec.GPUs {
		return gpu.OnViolation
	}
	return ""
}

func evicted(t *testing.T) {
	says(t, v1alpha1.ViolationEvict)
	within(t, "the node knows what the pool says", func(context.Context) bool {
		return decided(t) == v1alpha1.ViolationEvict
	})
	p := tenant(t, "evicted", "2Gi", false)
	wild := start(t, p, "main", static, above)
	told(t, p, v1alpha1.ReasonOverLimit, wild.begun())
	told(t, p, reasonEvicted, wild.begun())
	within(t, "the pod is gone", func(ctx context.Context) bool {
		return apierrors.IsNotFound(lab.Client.Get(ctx, client.ObjectKeyFromObject(p), &corev1.Pod{}))
	})
	untold(t, p, reasonKilled)
}

// spoilt has tenants scribble over their own ledgers, and cut them short.
func spoilt(t *testing.T, beside neighbour) {
	agent := agentOf(t)
	for name, script := range map[string]string{
		"scribbled": `for u in /run/sluice/*/*/usage; do $B dd if=/dev/urandom of=$u bs=4096 count=17 conv=notrunc; done`,
		"truncated": `for u in /run/sluice/*/*/usage; do : >$u; done`,
	} {
		t.Run(name, func(t *testing.T) {
			p := tenant(t, name, "2Gi", false) // with a process that the library knows, until then
			start(t, p, "main", "exec tenant --most $most", below)
			begun := time.Now()
			does(t, p, "main", script)
			told(t, p, v1alpha1.ReasonUnregisteredProcess, begun)
			beside.untouched(t)
		})
	}
	fills(t, tenant(t, "afterwards", "2Gi", false), "main", 2*gibi, 0, 0)
	if now := agentOf(t); now.UID != agent.UID || now.Status.ContainerStatuses[0].RestartCount != agent.Status.ContainerStatuses[0].RestartCount {
		t.Errorf("the agent was started again: %+v", now.Status.ContainerStatuses)
	}
}

func agentOf(t *testing.T) *corev1.Pod {
	t.Helper()
	agent, err := lab.Agent(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

// TestLimitsCannotBeChangedFromInside has root of a container try.
func TestLimitsCannotBeChangedFromInside(t *testing.T) {
	p := tenant(t, "inside", "2Gi", false)
	for name, script := range map[string]string{
		"write the limits":               `echo x >$limits`,
		"open the limits to all":         `$B chmod 666 $limits`,
		"cut the limits short":           `$B truncate -s 0 $limits`,
		"remove the limits":              `rm -f $limits`,
		"move other limits there":        `echo x >/tmp/other && $B mv /tmp/other $limits`,
		"move the limits away":           `$B mv $limits /tmp/away`,
		"unmount the limits":             `umount $limits`,
		"unmount the limits later":       `umount -l $limits`,
		"mount the limits writable":      `mount -o remount,bind,rw $limits`,
		"mount others over the limits":   `mount -o bind /etc/passwd $limits`,
		"unmount the preload":            `umount -l /etc/ld.so.preload`,
		"write the preload":              `echo >/etc/ld.so.preload`,
		"remove the preload":             `rm -f /etc/ld.so.preload`,
		"write the library":              `for l in /run/sluice/lib/*/libsluice.so; do echo x >$l; done`,
		"remove the library":             `rm -rf /run/sluice/lib`,
		"undo the mounts in a namespace": `$B unshare -U -r -m sh -c "umount $limits || umount /etc/ld.so.preload || mount -o remount,bind,rw $limits"`,
	} {
		t.Run(name, func(t *testing.T) {
			script := fmt.Sprintf("if (%s) >/tmp/said 2>&1; then echo it could; else echo it could not; fi", script)
			if got := does(t, p, "main", script); got != "it could not" {
				t.Errorf("root of a container tries to %s: %s", name, got)
			}
		})
	}
	fills(t, p, "main", 2*gibi, 0, 0)
}
