// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/fakemps"
)

func byMPS(name string) *builders.Pool { return builders.MakePool(name).Mode(v1alpha1.SharingMPS) }

func TestTenantsHaveOneDaemonThatOutlivesTheAgent(t *testing.T) {
	s := newScene(t, "outlives", false, byMPS("outlives"))
	first := s.pod("first", "10Gi", "30")
	second := s.pod("second", "20Gi", "")
	s.running(first, second)
	daemon := s.daemon()
	want := []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "CUDA_MPS_CLIENT_PRIORITY=0"}
	if diff := cmp.Diff(want, s.environment(first)[1:]); diff != "" {
		t.Errorf("what a tenant with compute got (-want +got):\n%s", diff)
	}
	want = []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_CLIENT_PRIORITY=1"}
	if diff := cmp.Diff(want, s.environment(second)[1:]); diff != "" {
		t.Errorf("what a tenant without compute got (-want +got):\n%s", diff)
	}
	server := s.process().Server(t)
	s.serving(v1alpha1.ReasonMPSServing, "1 devices")

	if err := cluster.KillAgent(t.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	if got := s.process().Server(t); got != server {
		t.Errorf("a process that starts while the agent is away got server %s, want %s", got, server)
	}
	if err := cluster.StartAgent(t.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.running(s.pod("third", "1Gi", "10"))
	if got := s.daemon(); got != daemon {
		t.Errorf("the next agent has daemon %d, want it to go on with %d", got, daemon)
	}
	s.serving(v1alpha1.ReasonMPSServing)
}

func TestADaemonThatEndsIsStartedAgainAndItsTenantsAreMarked(t *testing.T) {
	s := newScene(t, "ends", false, byMPS("ends"))
	first, second := s.pod("first", "10Gi", "30"), s.pod("second", "10Gi", "30")
	s.running(first, second)
	before := s.daemon()
	if err := unix.Kill(before, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	after := s.daemon(before)
	s.serving(v1alpha1.ReasonMPSDaemonEnded, "ends/first", "ends/second")
	s.told(first, v1alpha1.ReasonMPSDaemonEnded, "start the pod again")
	s.told(second, v1alpha1.ReasonMPSDaemonEnded, "start the pod again")
	third := s.pod("third", "10Gi", "30")
	s.running(third)
	s.remove(first)
	s.remove(second)
	s.serving(v1alpha1.ReasonMPSServing)
	if got := s.daemon(); got != after {
		t.Errorf("a tenant of the new daemon %d is held by %d", after, got)
	}
	if heard, err := s.hears(t.Context(), third, v1alpha1.ReasonMPSDaemonEnded, ""); err != nil || heard {
		t.Errorf("a pod that came later was told that its daemon has ended (error %v)", err)
	}
	s.remove(third)
	s.noDaemon()
}

func TestADaemonThatEndsWhileTheAgentIsAwayIsStartedAgain(t *testing.T) {
	s := newScene(t, "away", false, byMPS("away"))
	tenant := s.pod("tenant", "10Gi", "30")
	s.running(tenant)
	before := s.daemon()
	if err := cluster.KillAgent(t.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(before, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartAgent(t.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.daemon(before)
	s.serving(v1alpha1.ReasonMPSDaemonEnded, "away/tenant")
	s.told(tenant, v1alpha1.ReasonMPSDaemonEnded, "start the pod again")
}

func TestAServerThatATenantBrokeIsReported(t *testing.T) {
	s := newScene(t, "breaks", false, byMPS("breaks"))
	tenant := s.pod("tenant", "10Gi", "30")
	s.running(tenant)
	client := s.process()
	s.command("fault")
	s.serving(v1alpha1.ReasonMPSFault, "the 1 that it had")
	s.told(tenant, v1alpha1.ReasonMPSFault, "work on it has failed")
	client.End()
	s.serving(v1alpha1.ReasonMPSServing)
}

func TestANodeWithoutTheProgramSaysSo(t *testing.T) {
	s := newScene(t, "noprogram", false, byMPS("noprogram"))
	s.pool(v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonAllPublished)
	root := filepath.Join(cluster.Dir, "nodes", s.name, "driver")
	if err := os.Remove(fakemps.Program(root)); err != nil {
		t.Fatal(err)
	}
	tenant := s.pod("tenant", "10Gi", "30")
	s.told(tenant, "FailedPrepareDynamicResources", "nvidia-cuda-mps-control")
	s.serving(v1alpha1.ReasonMPSProgramMissing, "no claim of a GPU that is shared by MPS can start", "nvidia-cuda-mps-control")
	if err := fakemps.InstallIn(root); err != nil {
		t.Fatal(err)
	}
	s.running(tenant)
	s.serving(v1alpha1.ReasonMPSServing)
}

func TestMPSIsNeverMixedWithPlainProcesses(t *testing.T) {
	s := newScene(t, "mixed", false, byMPS("mixed"))
	before := s.plain()
	tenant := s.pod("tenant", "10Gi", "30")
	s.told(tenant, "FailedPrepareDynamicResources", strconv.Itoa(before.PID))
	if pids := s.daemons(); len(pids) != 0 {
		t.Errorf("daemons %v run beside a plain process", pids)
	}
	before.End()
	s.running(tenant)
	s.process()
	s.serving(v1alpha1.ReasonMPSServing)
	bypass := s.plain()
	s.serving(v1alpha1.ReasonMPSBypassed, "("+strconv.Itoa(bypass.PID)+")")
	bypass.End()
	s.serving(v1alpha1.ReasonMPSServing)
}

func TestAChangeOfTheModeWaitsForTheTenants(t *testing.T) {
	s := newScene(t, "changes", false, byMPS("changes"))
	first := s.pod("first", "10Gi", "30")
	s.running(first)
	daemon := s.daemon()
	s.mode(v1alpha1.SharingSoftware)
	s.pool(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked, "changes/first")
	s.draining()
	second := s.pod("second", "10Gi", "30")
	if got := s.daemon(); got != daemon {
		t.Errorf("the tenant's daemon was %d and is %d", daemon, got)
	}
	s.remove(first)
	s.running(second)
	s.noDaemon()
	if env := s.environment(second); len(env) != 0 {
		t.Errorf("a tenant of a pool with Software has %v", env)
	}

	s.mode(v1alpha1.SharingMPS)
	s.pool(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked, "changes/second")
	s.draining()
	third := s.pod("third", "10Gi", "30")
	if pids := s.daemons(); len(pids) != 0 {
		t.Errorf("daemons %v run beside a tenant without MPS", pids)
	}
	s.remove(second)
	s.running(third)
	s.daemon()
}

func TestInstancesOfALayoutHaveDaemonsOfTheirOwn(t *testing.T) {
	s := newScene(t, "instances", true, builders.MakePool("instances").Static("3g.40gb", 2).Mode(v1alpha1.SharingMPS))
	first, second := s.pod("first", "30Gi", "20"), s.pod("second", "30Gi", "20")
	s.running(first, second)
	if got := len(s.daemons()); got != 2 {
		t.Errorf("%d daemons run for two instances", got)
	}
	third := s.pod("third", "5Gi", "20")
	s.running(third)
	if got := len(s.daemons()); got != 2 {
		t.Errorf("%d daemons run for two instances after a third tenant", got)
	}
	s.serving(v1alpha1.ReasonMPSServing, "2 devices")
	for _, p := range []*corev1.Pod{first, second, third} {
		s.remove(p)
	}
	s.noDaemon()
}
