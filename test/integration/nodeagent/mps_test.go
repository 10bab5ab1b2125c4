// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/fakemps"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// mpsTime is how long a daemon may take to be seen to have ended, and to be started again.
const mpsTime = 60 * time.Second

func byMPS() v1alpha1.GPUDecision {
	d := shared()
	d.Sharing = v1alpha1.SharingMPS
	return d
}

// daemon is the PID of the MPS daemon of the rig's only device with one; 0 where there is none.
func daemon(t *testing.T, rig *agentproc.Rig) int {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(rig.Dir, "mps", "*", "daemon.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		return 0
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		return 0
	}
	var record struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	return record.PID
}

// TestMPSDaemonsOutliveTheAgent shares a GPU by MPS, kills the agent and has the next one go on with the daemon; then it kills
// the daemon, which the agent starts again.
func TestMPSDaemonsOutliveTheAgent(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	program := fakemps.Install(t, rig.Node.Root)
	t.Cleanup(func() { endDaemons(t, rig) })
	rig.Publish(t, byMPS())
	second := share("20Gi")
	second.ShareID = ptr.To(types.UID("second-share"))
	a, b := rig.Allocate("a", share("10Gi")), rig.Allocate("b", second)

	agent := rig.Start(t)
	prepare(t, agent, a)
	first := daemon(t, rig)
	if first == 0 {
		t.Fatal("a claim was prepared without an MPS daemon")
	}
	pipe := filepath.Join(rig.Dir, "mps", rig.Look(t).GPUs[0].UUID, "pipe")
	for _, part := range []string{
		`"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M"`, `"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"`,
		`"CUDA_MPS_PIPE_DIRECTORY=/run/sluice/uid-a/0/mps"`, `"hostPath":"` + pipe + `"`, `"containerPath":"/dev/shm"`, "ld.so.preload",
	} {
		if !strings.Contains(spec(t, rig, "uid-a"), part) {
			t.Errorf("the CDI spec has no %s", part)
		}
	}
	tenant := fakemps.Connect(t, program, pipe, 0)
	server := tenant.Server(t)

	agent.Kill()
	agent = rig.Start(t)
	prepare(t, agent, b)
	if got := daemon(t, rig); got != first {
		t.Errorf("the next agent has daemon %d, want it to go on with %d", got, first)
	}
	if got := fakemps.Connect(t, program, pipe, 0).Server(t); got != server {
		t.Errorf("a client got server %s, want %s", got, server)
	}

	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { pid := daemon(t, rig); return pid != 0 && pid != first })
	until(t, func() bool { return fakemps.Connect(t, program, pipe, 0).Server(t) != "plain" })

	last := daemon(t, rig)
	for _, claim := range []*resourceapi.ResourceClaim{a, b} {
		if err := agent.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	if left := rig.Names(t, "mps"); len(left) != 0 || unix.Kill(last, 0) == nil {
		t.Errorf("%v is left of MPS after the last tenant", left)
	}
	if status := agent.Stop(); status != 0 {
		t.Errorf("the agent ended with %d", status)
	}
}

// endDaemons ends what a test that failed has left of MPS.
func endDaemons(t *testing.T, rig *agentproc.Rig) {
	t.Helper()
	pids, err := fakemps.Daemons(filepath.Join(rig.Dir, "mps"))
	if err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func prepare(t *testing.T, agent *agentproc.Agent, claim *resourceapi.ResourceClaim) {
	t.Helper()
	if _, err := agent.Prepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

// spec is the text of a claim's CDI spec.
func spec(t *testing.T, rig *agentproc.Rig, uid string) string {
	t.Helper()
	for _, name := range rig.Names(t, "cdi") {
		if strings.Contains(name, uid) {
			data, err := os.ReadFile(filepath.Join(rig.Dir, "cdi", name))
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
	}
	t.Fatalf("claim %s has no CDI spec", uid)
	return ""
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(mpsTime), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatal("it does not come to that")
		case <-tick.C:
		}
	}
}
