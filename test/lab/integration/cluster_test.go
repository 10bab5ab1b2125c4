// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestControlPlane(t *testing.T) {
	r := up(t)
	if got, err := r.kubectl(t, "get", "--raw", "/readyz"); err != nil || got != "ok" {
		t.Errorf("/readyz = %q, %v; want ok", got, err)
	}
	resources, err := r.client.Discovery().ServerResourcesForGroupVersion("resource.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"} {
		found := false
		for _, resource := range resources.APIResources {
			found = found || resource.Name == want
		}
		if !found {
			t.Errorf("resource.k8s.io/v1 does not serve %s", want)
		}
	}
	if _, err := lab(t, "up", "--dir", string(r.dir)); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("a second up in the same directory says %v", err)
	}
}

func TestServiceAccountsAreLimited(t *testing.T) {
	r := up(t)
	eventually(t, "the default service account", func() error {
		_, err := r.client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	token, err := r.kubectl(t, "create", "token", "default")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.kubectl(t, "--token="+strings.TrimSpace(token), "--kubeconfig=/dev/null", "--server="+r.state.Server,
		"--certificate-authority="+r.dir.Certs()+"/ca.crt", "get", "pods"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a service account without rights is told %v, want forbidden", err)
	}
}

func TestAPIServerGoesAwayAndComesBack(t *testing.T) {
	r := up(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := r.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustLab(t, "stop", "kube-apiserver", "--dir", string(r.dir))
	if _, err := r.client.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
		t.Error("the stopped API server answers")
	}
	mustLab(t, "start", "kube-apiserver", "--dir", string(r.dir))
	if _, err := r.client.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after the stop: %v", err)
	}
	state, err := r.dir.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range state.Components {
		if !c.Running() {
			t.Errorf("%s does not run after the API server's stop", c.Name)
		}
	}
}

func TestTwoLabsSideBySide(t *testing.T) {
	first, second := up(t), up(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if _, err := first.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := second.client.CoreV1().Namespaces().Get(t.Context(), "mine", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the other lab says %v of the first one's namespace, want not found", err)
	}
	mustLab(t, "down", "--dir", string(first.dir))
	for _, c := range first.state.Components {
		if c.Running() {
			t.Errorf("%s runs after down", c.Name)
		}
	}
	if _, err := os.Stat(string(first.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left after down (%v)", err)
	}
	if _, err := second.client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the other lab says %v after the first one's down", err)
	}
}

func TestFailedStartLeavesNothingAndShowsWhy(t *testing.T) {
	if testing.Short() {
		t.Skip("a control plane is not for short runs")
	}
	dir := t.TempDir()
	_, err := lab(t, "up", "--dir", dir, "--extra", "kube-apiserver=--no-such-flag")
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Fatalf("up says %v, want the API server's complaint", err)
	}
	if out := mustLab(t, "status", "--dir", dir); strings.Contains(out, "runs as") {
		t.Errorf("after a failed start:\n%s", out)
	}
	mustLab(t, "down", "--dir", dir)
}
