// SPDX-License-Identifier: Apache-2.0

// Package uninstall_test installs Sluice from its chart, uses it and uninstalls it, on machines with kubelet, containerd and real
// containers: nothing may be left on the machines or in the cluster.
package uninstall_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	whole    = "whole"
	divided  = "divided"
	patience = 120 * time.Second
)

var lab *machine.Lab

func TestMain(m *testing.M) {
	os.Exit(machine.Main(m, &lab, machine.Shared{Timeout: 15 * time.Minute, Furnish: furnish}))
}

func furnish(ctx context.Context, l *machine.Lab) error {
	images, err := machine.Images()
	if err != nil {
		return fmt.Errorf("furnishing the lab: %w", err)
	}
	for name, mig := range map[string]bool{whole: false, divided: true} {
		err := l.Add(ctx, machine.Machine{
			Name: name, Board: "h100-80gb", GPUs: 2, MIG: mig, Images: images,
			Labels: map[string]string{machine.PresentLabel: "true", "node-restriction.kubernetes.io/gpu-pool": name},
		})
		if err != nil {
			return fmt.Errorf("adding a machine: %w", err)
		}
	}
	return nil
}

func wait(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		t.Fatal(err)
	}
}

// use installs the chart, makes pools, and runs a tenant.
func use(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	if err := lab.Install(t.Context(), stack.Path("charts", "sluice")); err != nil {
		t.Fatal(err)
	}
	pod := builders.MakePod(name).Pool(whole).Memory("2Gi").Obj()
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "sluice.dev/test/busybox:1", corev1.PullNever
	pod.Spec.Containers[0].Command = []string{"/bin/sh", "-c", "trap 'exit 0' TERM; while :; do /bin/sleep 0.2; done"}
	for _, object := range []client.Object{
		builders.MakePool(whole).Nodes(whole).Obj(), builders.MakePool(divided).Nodes(divided).Static("3g.40gb", 2).Obj(), pod,
	} {
		if err := lab.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := lab.Await(ctx, pod, "runs", machine.Running); err != nil {
		t.Fatal(err)
	}
	wait(t, "the GPUs are divided", func(ctx context.Context) (bool, error) {
		node := &v1alpha1.GPUNode{}
		err := lab.Client.Get(ctx, client.ObjectKey{Name: divided}, node)
		return err == nil && len(node.Status.GPUs) == 2 && len(node.Status.GPUs[0].Instances) == 2 && len(node.Status.GPUs[1].Instances) == 2, err
	})
	return pod
}

func TestUninstall(t *testing.T) {
	pod := use(t, "tenant")
	if files(t, whole) == "" {
		t.Fatal("the agent has no files: there would be nothing to remove")
	}
	if mounts, err := lab.On(t.Context(), whole, "grep", " /run/sluice ", "/proc/self/mountinfo"); err != nil || !strings.Contains(mounts, "- tmpfs sluice ") {
		t.Errorf("the shares are not on a tmpfs of their own: %v\n%s", err, mounts)
	}
	refused := lab.Uninstall(t.Context())
	said, err := lab.Kubectl(t.Context(), "logs", "job/sluice-uninstall", "--namespace", stack.Namespace)
	if refused == nil || err != nil || !strings.Contains(said, "GPUs are in use by claim") || !strings.Contains(said, "(pod tenant)") {
		t.Fatalf("with a tenant: %v, want it refused; it says (%v):\n%s", refused, err, said)
	}
	if pools := list(t, &v1alpha1.GPUPoolList{}); pools != 2 {
		t.Fatalf("%d pools are left of 2 by what was refused", pools)
	}
	if err := lab.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wait(t, "the tenant is gone", func(ctx context.Context) (bool, error) {
		err := lab.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err := lab.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNothing(t)
	for _, name := range []string{whole, divided} {
		if left := files(t, name); left != "" {
			t.Errorf("machine %s still has\n%s", name, left)
		}
		if mounts, err := lab.On(t.Context(), name, "cat", "/proc/self/mountinfo"); err != nil || strings.Contains(mounts, " /run/sluice ") {
			t.Errorf("machine %s still has the tmpfs of the shares: %v\n%s", name, err, mounts)
		}
		shown, err := lab.FakeGPU(t.Context(), name, "show")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(shown, "3g.40gb") {
			t.Errorf("machine %s still has instances:\n%s", name, shown)
		}
	}

	// What was taken away comes back.
	pod = use(t, "again")
	if err := lab.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// files are all on a machine that are Sluice's.
func files(t *testing.T, name string) string {
	t.Helper()
	found, err := lab.On(t.Context(), name, "find", "/run/sluice", "/run/sluice-mps", "/var/lib/sluice", "/var/run/cdi",
		"/var/lib/kubelet/plugins/"+v1alpha1.DriverName, "/var/lib/kubelet/plugins_registry", "!", "-type", "d")
	if err != nil && !strings.Contains(err.Error(), "No such file or directory") {
		t.Fatal(err)
	}
	return strings.TrimSpace(found)
}

// wantNothing looks for objects that Sluice makes.
func wantNothing(t *testing.T) {
	t.Helper()
	marked := client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}
	for what, kind := range map[string]struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		"pools": {list: &v1alpha1.GPUPoolList{}}, "nodes": {list: &v1alpha1.GPUNodeList{}},
		"ledgers": {list: &v1alpha1.GPULedgerList{}}, "slices": {list: &resourceapi.ResourceSliceList{}},
		"classes":   {list: &resourceapi.DeviceClassList{}, options: []client.ListOption{marked}},
		"templates": {list: &resourceapi.ResourceClaimTemplateList{}, options: []client.ListOption{marked}},
		"secrets":   {list: &corev1.SecretList{}, options: []client.ListOption{client.InNamespace(stack.Namespace)}},
		"pods":      {list: &corev1.PodList{}, options: []client.ListOption{client.InNamespace(stack.Namespace)}},
	} {
		if n := list(t, kind.list, kind.options...); n > 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}

// list says how many objects of a kind there are.
func list(t *testing.T, kind client.ObjectList, options ...client.ListOption) int {
	t.Helper()
	if err := lab.Client.List(t.Context(), kind, options...); err != nil {
		t.Fatal(err)
	}
	return meta.LenList(kind)
}
