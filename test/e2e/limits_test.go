// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// same compares what a program could take.
func same(t *testing.T, want, got outcome) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what could be taken differs (-want +got):\n%s", diff)
	}
}

func TestAContainerIsHeld(t *testing.T) {
	p := run(t, pod("held"))
	for _, tc := range []struct {
		name    string
		command []string
	}{
		{name: "a process is held", command: []string{"/bin/tenant"}},
		{name: "a process without an environment is held", command: []string{"/bin/env", "-i", "/bin/tenant"}},
		{name: "a process of another user is held", command: []string{"/bin/su", "tenant", "-c", `/bin/tenant "$@"`, "--", "sh"}},
		{name: "a process in a root of its own, of the same files, is held", command: []string{"/bin/chroot", "/", "/bin/tenant"}},
		{name: "a child of a shell is held", command: []string{"/bin/sh", "-c", `/bin/tenant "$@"; exit`, "sh"}},
	} {
		t.Run(tc.name, func(t *testing.T) { same(t, fits(2*gibi, 0, 0), take(t, p, "main", tc.command...)) })
	}
	t.Run("processes of a share have it together, each with a context", func(t *testing.T) {
		hold(t, p, 8)
		same(t, fits(2*gibi, 1, 8), take(t, p, "main", "/bin/tenant"))
	})
}

func TestAContainerThatTakesNothingRuns(t *testing.T) {
	p := pod("plain")
	p.Spec.Containers[0].Image = busyboxImage
	p = run(t, p)
	if out, err := lab.Exec(t.Context(), p, "main", "/bin/sh", "-c", "echo fine"); err != nil || out != "fine\n" {
		t.Errorf("a command in it says %q, %v", out, err)
	}
}

func TestContainersHaveLimitsOfTheirOwn(t *testing.T) {
	p := run(t, with(pod("two"), "other", "3Gi"))
	hold(t, p, 4)
	same(t, fits(3*gibi, 0, 0), take(t, p, "other", "/bin/tenant"))
	same(t, fits(2*gibi, 1, 4), take(t, p, "main", "/bin/tenant"))
}

func TestAClaimIsSharedByPods(t *testing.T) {
	claim(t, "common", small, "4Gi")
	first := run(t, holding("first", "common"))
	second := run(t, holding("second", "common"))
	hold(t, first, 10)
	same(t, fits(4*gibi, 1, 10), take(t, second, "main", "/bin/tenant"))
}

func TestAnInitContainerUsesTheMainOnesShare(t *testing.T) {
	p := pod("init")
	first := *p.Spec.Containers[0].DeepCopy()
	first.Name, first.Command = "first", []string{"/bin/tenant", "--exit"}
	p.Spec.InitContainers = []corev1.Container{first}
	p = run(t, p)
	log, err := lab.Log(p, "first", 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tenants.Decode(log)
	if err != nil {
		t.Fatal(err)
	}
	same(t, fits(2*gibi, 0, 0), got)
	same(t, fits(2*gibi, 0, 0), take(t, p, "main", "/bin/tenant"))
}

func TestARestartedContainerStartsFromZero(t *testing.T) {
	p := pod("restarted")
	p.Spec.Containers[0].Command = []string{"/bin/tenant"} // takes all that it may
	p = run(t, p)
	if _, err := lab.On(t.Context(), large, "sh", "-c", "kill -KILL $(pidof tenant)"); err != nil {
		t.Fatal(err)
	}
	p = again(t, p)
	same(t, fits(2*gibi, 0, 0), logged(t, p, 1))
}
