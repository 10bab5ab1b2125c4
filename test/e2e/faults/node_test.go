// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

func TestANodesProgramsGo(t *testing.T) { //nolint:tparallel // one machine, broken in one way after the other
	t.Parallel()
	worker := tenants.Work(t, lab, "outlives", small, 4)
	for _, tc := range []struct {
		name   string
		breaks func(t *testing.T)
	}{
		{name: "the agent is killed", breaks: func(t *testing.T) {
			t.Helper()
			must(t, lab.KillAgent(t.Context(), small))
		}},
		{name: "kubelet is killed, and its devices are back within 5 s", breaks: kubeletComesBack},
		{name: "containerd is killed", breaks: func(t *testing.T) {
			t.Helper()
			kill(t, "containerd") // which also writes the logs: what the worker says meanwhile comes later
			start(t, "containerd")
		}},
		{name: "agent, kubelet and containerd are killed", breaks: func(t *testing.T) {
			t.Helper()
			kill(t, "kubelet")
			kill(t, "containerd")
			must(t, lab.KillAgent(t.Context(), small))
			start(t, "containerd")
			start(t, "kubelet")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := runs(t, tenants.Pod("before", small, "1Gi"))
			tc.breaks(t)
			aNewOneStarts(t, "new", small)
			held(t, before, 1)
			worker.Check(t)
			nothingTwice(t)
		})
	}
	t.Run("the state directory's disk is full", func(t *testing.T) { diskFills(t, worker) })
	t.Run("the machine reboots", reboots)
	tenants.Remove(t, lab, worker.Pod())
	await(t, "nothing is left of the tenants", func(ctx context.Context) (bool, error) {
		left, err := files(ctx, small)
		return !strings.Contains(left, "/var/run/cdi/") && !strings.Contains(left, "/limits"), err
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kill kills a program of the small machine, which stays away until it is started, at the latest when the test ends.
func kill(t *testing.T, program string) {
	t.Helper()
	_, err := lab.Machine(t.Context(), program+"-kill", small)
	must(t, err)
	t.Cleanup(func() { _, _ = lab.Machine(context.WithoutCancel(t.Context()), program+"-start", small) })
}

func start(t *testing.T, program string) {
	t.Helper()
	_, err := lab.Machine(t.Context(), program+"-start", small)
	must(t, err)
}

// kubeletComesBack kills kubelet, which deletes the node's devices when it starts again, and measures from the moment that the
// agent has registered with it until they are all back.
func kubeletComesBack(t *testing.T) {
	t.Helper()
	before := published(t.Context(), t)
	kill(t, "kubelet")
	from := logSize(t)
	start(t, "kubelet")
	var registered time.Time
	await(t, "the agent registers with kubelet", func(context.Context) (bool, error) {
		registered = registration(t, from)
		return !registered.IsZero(), nil
	})
	await(t, "the devices are back", func(ctx context.Context) (bool, error) {
		now := published(ctx, t)
		for uid := range before {
			if _, stale := now[uid]; stale {
				return false, nil
			}
		}
		return count(now) == count(before), nil
	})
	took := time.Since(registered)
	t.Logf("the devices were back %.1f s after the agent had registered", took.Seconds())
	if took > 5*time.Second {
		t.Errorf("the devices were back after %.1f s, want 5 s or less", took.Seconds())
	}
}

// published is how many devices of the small machine the scheduler sees, by the UID of their slice.
func published(ctx context.Context, t *testing.T) map[types.UID]int {
	t.Helper()
	var slices resourceapi.ResourceSliceList
	if err := lab.Client.List(ctx, &slices); err != nil {
		t.Fatal(err)
	}
	devices := map[types.UID]int{}
	for _, slice := range slices.Items {
		if slice.Spec.Driver == v1alpha1.DriverName && slice.Spec.Pool.Name == small {
			devices[slice.UID] = len(slice.Spec.Devices)
		}
	}
	return devices
}

func count(devices map[types.UID]int) int {
	n := 0
	for _, d := range devices {
		n += d
	}
	return n
}

func kubeletLog() string { return filepath.Join(lab.Dir, "machines", small, "logs", "kubelet.log") }

func logSize(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(kubeletLog())
	must(t, err)
	return len(log)
}

// registration is when kubelet, by its log from a place on, took the agent's driver.
func registration(t *testing.T, from int) time.Time {
	t.Helper()
	log, err := os.ReadFile(kubeletLog())
	must(t, err)
	for line := range strings.Lines(string(log[from:])) {
		fields := strings.Fields(line)
		if strings.Contains(line, `driverName="`+v1alpha1.DriverName+`"`) && strings.Contains(line, "connected=true") {
			at, err := time.ParseInLocation("15:04:05.000000", fields[1], time.Local)
			must(t, err)
			now := time.Now()
			return time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.Local)
		}
	}
	return time.Time{}
}

// diskFills fills the disk of the agent's state: a new tenant waits, and its event says for what.
func diskFills(t *testing.T, worker *tenants.Worker) {
	t.Helper()
	const fill = "/var/lib/sluice/fill"
	// First fast, then to the last block.
	for _, size := range []string{"1M", "512"} {
		if _, err := lab.On(t.Context(), small, "dd", "if=/dev/zero", "of="+fill, "bs="+size, "oflag=append", "conv=notrunc"); err == nil {
			t.Fatal("the disk cannot be filled")
		}
	}
	t.Cleanup(func() { _, _ = lab.On(context.WithoutCancel(t.Context()), small, "rm", "-f", fill) })
	waits := tenants.Pod("waits", small, "2Gi")
	admitted(t, waits)
	t.Log(noted(t, waits, "no space left on device"))
	worker.Check(t)
	// An agent that starts now finds no space either.
	must(t, lab.KillAgent(t.Context(), small))
	worker.Check(t)
	_, err := lab.On(t.Context(), small, "rm", fill)
	must(t, err)
	waits = tenants.Await(t, lab, waits, "runs", machine.Running)
	held(t, waits, 2)
	worker.Check(t)
	nothingTwice(t)
}

// reboots cuts the machine off and boots it: its tenants come back to their shares, which start from zero.
func reboots(t *testing.T) {
	t.Helper()
	p := tenants.Pod("reboots", small, "3Gi")
	p.Spec.Containers[0].Command = []string{"/bin/tenant"}
	p = runs(t, p)
	if wrong := tenants.Within(tenants.Logged(t, lab, p, 0), 3*tenants.Gibi, 0, 0); wrong != "" {
		t.Error(wrong)
	}
	checkpoint := filepath.Join("/var/lib/sluice", "claims.json")
	before, err := lab.On(t.Context(), small, "cat", checkpoint)
	must(t, err)
	claim := string(p.UID)
	if !strings.Contains(before, claim) && !strings.Contains(before, p.Name) {
		t.Fatalf("the checkpoint does not know the tenant:\n%s", before)
	}
	_, err = lab.Machine(t.Context(), "reboot", small)
	must(t, err)
	p = tenants.Again(t, lab, p)
	if wrong := tenants.Within(tenants.Logged(t, lab, p, 1), 3*tenants.Gibi, 0, 0); wrong != "" {
		t.Error(wrong)
	}
	aNewOneStarts(t, "after", small)
	nothingTwice(t)
}
