// SPDX-License-Identifier: Apache-2.0

// Package uninstall tests what `helm uninstall` runs before it deletes anything, with the rights that the chart gives it: on a
// real control plane, with the real manager and the real agents over fake GPUs. Nothing deletes the programs in the lab; they
// are beside the cluster.
package uninstall

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// patience is the longest that anything may take.
const patience = 90 * time.Second

var cluster *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, &cluster, stack.Shared{
		Timeout: 10 * time.Minute, Options: stack.Options{ManagerArgs: []string{"--drain-settle=2s", "--schedule-jitter=0s"}},
	}))
}

func wait(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, object client.Object) {
	t.Helper()
	if err := cluster.Client.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

// rights applies what the chart lets the job do, and returns a kubeconfig with just that.
func rights(t *testing.T) string {
	t.Helper()
	helm, err := exec.CommandContext(t.Context(), stack.Path("hack", "helm.sh")).Output()
	if err != nil {
		t.Fatalf("building helm: %v", err)
	}
	rendered, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(helm)), "template", "sluice", stack.Path("charts", "sluice"),
		"--namespace", stack.Namespace, "--show-only", "templates/uninstall.yaml").Output()
	if err != nil {
		t.Fatalf("rendering the job's rights: %v", err)
	}
	var objects []string
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(string(rendered), -1) {
		if !strings.Contains(document, "kind: Job") {
			objects = append(objects, document)
		}
	}
	file := filepath.Join(t.TempDir(), "rights.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(objects, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), "sluice-uninstall")
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// uninstall runs what the job does and returns what it says.
func uninstall(t *testing.T, kubeconfig string) (string, error) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), stack.Path("bin", "manager"), "uninstall", "--kubeconfig="+kubeconfig,
		"--namespace="+stack.Namespace, "--pool-timeout=60s", "--node-timeout=20s")
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	return said.String(), err
}

func TestUninstallLeavesNothingBehind(t *testing.T) {
	kubeconfig := rights(t)
	for name, mig := range map[string]bool{"divided": true, "whole": false, "dead": false} {
		if err := cluster.AddNode(t.Context(), stack.Node{Name: name, Pool: name, Board: "h100-80gb", GPUs: 2, MIG: mig}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, builders.MakePool("divided").Static("3g.40gb", 2).Obj())
	create(t, builders.MakePool("whole").Mode(v1alpha1.SharingSoftware).Obj())
	pod := builders.MakePod("tenant").Pool("whole").Memory("10Gi").Obj()
	pod.Namespace = corev1.NamespaceDefault
	create(t, pod)
	wait(t, "the tenant runs", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase == corev1.PodRunning, err
	})
	waitForInstances(t, "divided", 4)
	if said, err := uninstall(t, kubeconfig); err == nil || !strings.Contains(said, "pod tenant") {
		t.Fatalf("with a tenant it ended with %v and said:\n%s", err, said)
	}
	wantPools(t, 2)

	if err := cluster.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wait(t, "the tenant is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	waitForRelease(t)
	if err := cluster.KillAgent(t.Context(), "dead"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Join(cluster.Dir, "nodes", "whole", "state")); err != nil || len(entries) == 0 {
		t.Fatalf("the agent keeps %d files, %v: there would be nothing to remove", len(entries), err)
	}
	said, err := uninstall(t, kubeconfig)
	if err != nil {
		t.Fatalf("it failed: %v\n%s", err, said)
	}
	if !strings.Contains(said, "Agents have not left") || !strings.Contains(said, `"dead (`) || strings.Contains(said, `"whole (`) {
		t.Errorf("it did not name the one node whose agent is dead:\n%s", said)
	}
	wantNothing(t)
	for _, node := range []string{"divided", "whole"} {
		wantNoFiles(t, node)
		shown, err := cluster.FakeGPU(t.Context(), node, "show")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(shown, "3g.40gb") {
			t.Errorf("node %s still has instances:\n%s", node, shown)
		}
	}
}

// waitForInstances waits until a node reports so many MIG instances.
func waitForInstances(t *testing.T, name string, want int) {
	t.Helper()
	wait(t, fmt.Sprintf("node %s has %d instances", name, want), func(ctx context.Context) (bool, error) {
		node := &v1alpha1.GPUNode{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		got := 0
		for _, g := range node.Status.GPUs {
			got += len(g.Instances)
		}
		return got == want && meta.IsStatusConditionTrue(node.Status.Conditions, v1alpha1.NodeReady), nil
	})
}

// waitForRelease waits until no claim is left.
func waitForRelease(t *testing.T) {
	t.Helper()
	wait(t, "no claim is left", func(ctx context.Context) (bool, error) {
		claims := &resourceapi.ResourceClaimList{}
		err := cluster.Client.List(ctx, claims)
		return len(claims.Items) == 0, err
	})
}

func wantPools(t *testing.T, want int) {
	t.Helper()
	pools := &v1alpha1.GPUPoolList{}
	if err := cluster.Client.List(t.Context(), pools); err != nil {
		t.Fatal(err)
	}
	for _, pool := range pools.Items {
		if !pool.DeletionTimestamp.IsZero() {
			t.Errorf("pool %s is being deleted", pool.Name)
		}
	}
	if len(pools.Items) != want {
		t.Errorf("there are %d pools, want %d", len(pools.Items), want)
	}
}

// wantNothing looks for objects that Sluice makes. The slices of the dead agent's node are none: it was in no pool.
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
	} {
		if err := cluster.Client.List(t.Context(), kind.list, kind.options...); err != nil {
			t.Fatal(err)
		}
		if n := meta.LenList(kind.list); n > 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}

// wantNoFiles looks for files of the agent in its directories.
func wantNoFiles(t *testing.T, node string) {
	t.Helper()
	dir := filepath.Join(cluster.Dir, "nodes", node)
	for _, of := range []string{"state", "shares", "cdi"} {
		err := filepath.WalkDir(filepath.Join(dir, of), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				t.Errorf("node %s still has %s", node, path)
			}
			return client.IgnoreNotFound(err)
		})
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	}
}
