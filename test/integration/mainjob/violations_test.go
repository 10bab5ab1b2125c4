// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/violations"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// bypass starts a process that has a pod's share mounted, as its containers have, and holds memory of the GPU that no library
// was asked for.
func (s scene) bypass(node string, pod *corev1.Pod, mebibytes int) {
	s.Helper()
	var claim resourceapi.ResourceClaim
	key := client.ObjectKey{Namespace: pod.Namespace, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}
	if err := cluster.Client.Get(s.Context(), key, &claim); err != nil {
		s.Fatal(err)
	}
	limits := filepath.Join(cluster.Dir, "nodes", node, "shares", string(claim.UID), "0", "limits")
	place := filepath.Join(s.TempDir(), "limits")
	if err := os.WriteFile(place, nil, 0o600); err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), "unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && echo there && exec sleep 1000`, limits, place)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		s.Fatalf("mounting the share: %q, %v", line, err)
	}
	_, err = cluster.FakeGPU(s.Context(), node, "attach", "--gpu", "0", "--pid", strconv.Itoa(cmd.Process.Pid), "--memory", strconv.Itoa(mebibytes))
	if err != nil {
		s.Fatal(err)
	}
}

// TestAPodThatViolatesItsLimitIsEvicted holds one back by a disruption budget at first.
func TestAPodThatViolatesItsLimitIsEvicted(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "evict", Pool: "evict", Board: "h100-80gb", GPUs: 1})
	pool := builders.MakePool("evict").Obj()
	pool.Spec.Sharing.OnViolation = v1alpha1.ViolationEvict
	s.pool(pool)
	ask := func(name string) *corev1.Pod {
		p := builders.MakePod(name).Pool("evict").Memory("4Gi").Obj()
		p.Labels["name"] = name
		return s.pod(p)
	}
	wild, neighbour := ask("wild"), ask("neighbour")
	s.running(wild, neighbour)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "wild"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "wild"}},
		},
	}
	s.create(budget)
	s.nodeCondition("evict", v1alpha1.NodeLimitsViolated, metav1.ConditionFalse, v1alpha1.ReasonWithinLimits)
	s.nodeCondition("evict", v1alpha1.NodeMemoryUnverified, metav1.ConditionFalse, v1alpha1.ReasonVerified)
	s.bypass("evict", wild, 5<<10)

	condition := s.nodeCondition("evict", v1alpha1.NodeLimitsViolated, metav1.ConditionTrue, v1alpha1.ReasonOverLimit)
	if !strings.Contains(condition.Message, s.namespace+"/wild hold 5Gi") {
		t.Errorf("the node says %q", condition.Message)
	}
	if note := s.event(wild, v1alpha1.ReasonOverLimit); !strings.Contains(note, "sleep (") || !strings.Contains(note, "evicted") {
		t.Errorf("the pod is told %q", note)
	}
	var node v1alpha1.GPUNode
	if err := cluster.Client.Get(t.Context(), client.ObjectKey{Name: "evict"}, &node); err != nil {
		t.Fatal(err)
	}
	v := node.Status.Violations
	if len(v) != 1 || !slices.Equal(v[0].Pods, []string{s.namespace + "/wild"}) || v[0].Action != v1alpha1.ViolationEvict ||
		v[0].Held.String() != "5Gi" || v[0].Limit.String() != "4Gi" {
		t.Errorf("the node reports %+v", v)
	}
	s.event(wild, violations.ReasonBlocked)
	if err := cluster.Client.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	s.event(wild, violations.ReasonEvicted)
	s.wait("the pod is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(wild), wild.DeepCopy())
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	s.running(neighbour)
	s.nodeCondition("evict", v1alpha1.NodeLimitsViolated, metav1.ConditionFalse, v1alpha1.ReasonWithinLimits)
}
