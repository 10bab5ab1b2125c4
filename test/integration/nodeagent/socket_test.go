// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// TestSharesOverTheSocket prepares shares until the published memory is used up, and sees what a container would get.
func TestSharesOverTheSocket(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	rig.Publish(t, shared())
	agent := rig.Start(t)
	first, second := rig.Allocate("first", share("59Gi")), rig.Allocate("second", share("59Gi"))
	third := rig.Allocate("third", share("1Gi"))
	for _, claim := range []*resourceapi.ResourceClaim{first, second} {
		devices, err := agent.Prepare(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		if len(devices) != 1 || devices[0].GetShareId() != "share-of-gpu-0" || devices[0].GetPoolName() != agentproc.NodeName ||
			cmp.Diff([]string{"gpu"}, devices[0].GetRequestNames()) != "" {
			t.Errorf("devices of %s are %v", claim.Name, devices)
		}
		if mount := specMount(t, rig, "/run/sluice/"+string(claim.UID)+"/0/limits"); !strings.HasPrefix(mount, rig.Dir) {
			t.Errorf("the limits of %s are mounted from %q", claim.Name, mount)
		}
	}
	// The scheduler would not have allocated it, unless it believes one of the others gone.
	rig.Delete(first)
	if _, err := agent.Prepare(t.Context(), third); err == nil || !strings.Contains(err.Error(), "still held by claim tenant/first") {
		t.Errorf("a share beyond what is published: %v", err)
	}
	if err := agent.Unprepare(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Prepare(t.Context(), third); err != nil {
		t.Errorf("a share after another was released: %v", err)
	}
	if status := agent.Stop(); status != 0 {
		t.Errorf("the agent ends with status %d", status)
	}
}

// specMount is the host's path of what is mounted at a path of the container, in any spec; "" for none.
func specMount(t *testing.T, rig *agentproc.Rig, containerPath string) string {
	t.Helper()
	for _, name := range rig.Names(t, "cdi") {
		data, err := os.ReadFile(filepath.Join(rig.Dir, "cdi", name))
		if err != nil {
			t.Fatal(err)
		}
		var spec struct {
			Devices []struct {
				ContainerEdits struct {
					Mounts []struct{ HostPath, ContainerPath string }
				}
			}
		}
		if err := json.Unmarshal(data, &spec); err != nil {
			t.Fatal(err)
		}
		for _, d := range spec.Devices {
			for _, m := range d.ContainerEdits.Mounts {
				if m.ContainerPath == containerPath {
					return m.HostPath
				}
			}
		}
	}
	return ""
}

// TestHardwareFailsInPrepare lets single NVML calls fail: the claim is not prepared, nothing is left, and the next Prepare
// succeeds.
func TestHardwareFailsInPrepare(t *testing.T) {
	for _, call := range []string{
		"nvmlDeviceSetMigMode", "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance",
	} {
		t.Run(call, func(t *testing.T) {
			rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
			rig.Publish(t, divided())
			agent := rig.Start(t)
			claim := rig.Allocate("claim", device("gpu-0-mig-1g10gb-6"))
			rig.Node.Fault(t, call, "NVML_ERROR_UNKNOWN", 0)
			if _, err := agent.Prepare(t.Context(), claim); err == nil {
				t.Fatal("Prepare succeeded")
			}
			nothing := left{
				Claims: map[string]checkpoint.State{}, Shares: []string{}, Instances: []string{}, MIGMode: []bool{false},
			}
			expect(t, "after the call failed", rig, nothing)
			if _, err := agent.Prepare(t.Context(), claim); err != nil {
				t.Fatalf("the next Prepare: %v", err)
			}
			if err := agent.Unprepare(t.Context(), claim); err != nil {
				t.Fatalf("Unprepare: %v", err)
			}
			expect(t, "after Unprepare", rig, nothing)
		})
	}
}

// TestAnInstanceInUseIsNotForgotten lets the destruction fail once, as with a process on the instance.
func TestAnInstanceInUseIsNotForgotten(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true}))
	rig.Publish(t, divided())
	agent := rig.Start(t)
	claim := rig.Allocate("claim", device("gpu-0-mig-1g10gb-6"))
	if _, err := agent.Prepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	rig.Node.Fault(t, "nvmlComputeInstanceDestroy", "NVML_ERROR_IN_USE", 0)
	if err := agent.Unprepare(t.Context(), claim); err == nil || !strings.Contains(err.Error(), "gpu-0-mig-1g10gb-6") {
		t.Errorf("Unprepare of an instance in use: %v", err)
	}
	other := rig.Allocate("other", device("gpu-0-mig-1g10gb-6"))
	if _, err := agent.Prepare(t.Context(), other); err == nil || !strings.Contains(err.Error(), "still held by claim tenant/claim") {
		t.Errorf("the instance in use for another claim: %v", err)
	}
	if err := agent.Unprepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Prepare(t.Context(), other); err != nil {
		t.Errorf("the instance after its release: %v", err)
	}
}

// TestReboot prepares, boots the node and prepares again.
func TestReboot(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 2, MIG: true}))
	rig.Publish(t, divided(), divided())
	agent := rig.Start(t)
	claim := rig.Allocate("claim", device("gpu-0-mig-1g10gb-6"))
	if _, err := agent.Prepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	agent.Kill()
	rig.Reboot(t)
	if err := os.RemoveAll(filepath.Join(rig.Dir, "shares")); err != nil {
		t.Fatal(err)
	}
	agent = rig.Start(t)
	expect(t, "after the boot", rig, left{
		Claims: map[string]checkpoint.State{"uid-claim": checkpoint.Lost}, Shares: []string{}, Instances: []string{}, MIGMode: []bool{true, true},
	})
	if _, err := agent.Prepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	expect(t, "after kubelet's Prepare", rig, left{
		Claims: map[string]checkpoint.State{"uid-claim": checkpoint.Prepared}, Shares: []string{"uid-claim"}, Specs: 1,
		Instances: []string{"gpu-0 1g.10gb:6"}, MIGMode: []bool{true, true},
	})
}

// TestTwoAgentsServeTheSameClaims is what an upgrade of the agent looks like to kubelet.
func TestTwoAgentsServeTheSameClaims(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	rig.Publish(t, divided())
	old, next := rig.StartAs(t, "old"), rig.StartAs(t, "new")
	claims := make([]*resourceapi.ResourceClaim, 7)
	var group errgroup.Group
	for i := range claims {
		claims[i] = rig.Allocate(fmt.Sprintf("claim-%d", i), device(fmt.Sprintf("gpu-0-mig-1g10gb-%d", i)))
		agent := []*agentproc.Agent{old, next}[i%2]
		group.Go(func() error {
			_, err := agent.Prepare(t.Context(), claims[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := len(leftOn(t, rig).Instances); got != len(claims) {
		t.Errorf("%d instances for %d claims", got, len(claims))
	}
	for i, claim := range claims {
		agent := []*agentproc.Agent{next, old}[i%2]
		group.Go(func() error { return agent.Unprepare(t.Context(), claim) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	expect(t, "after all were released", rig, left{
		Claims: map[string]checkpoint.State{}, Shares: []string{}, Instances: []string{}, MIGMode: []bool{false},
	})
}

// TestAnAgentWithoutAPodWaitsForTheOther keeps two agents from having one socket: the later would take it along when it
// ends, and the earlier would never be reached again.
func TestAnAgentWithoutAPodWaitsForTheOther(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	rig.Publish(t, divided())
	old := rig.StartAs(t, "old")
	next := rig.StartToWait(t)
	if rig.Serves() {
		t.Fatal("the agent serves before the other has ended")
	}
	old.Kill()
	rig.Served(t, next)
	if _, err := next.Prepare(t.Context(), rig.Allocate("claim", device("gpu-0-mig-1g10gb-6"))); err != nil {
		t.Fatal(err)
	}
}

// TestAdminAccessGetsNoShare looks at a GPU that another claim has.
func TestAdminAccessGetsNoShare(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	rig.Publish(t, exclusive())
	agent := rig.Start(t)
	admin := device("gpu-0")
	admin.AdminAccess = ptr.To(true)
	for _, claim := range []*resourceapi.ResourceClaim{rig.Allocate("tenant", device("gpu-0")), rig.Allocate("monitor", admin)} {
		if _, err := agent.Prepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"uid-tenant"}, rig.Names(t, "shares")); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}

// TestAnUnreadableCheckpointEndsTheAgent never takes it for an empty one.
func TestAnUnreadableCheckpointEndsTheAgent(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	rig.Publish(t, shared())
	path := filepath.Join(rig.Dir, "state", checkpoint.ClaimsFile)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, log := rig.Fails(t)
	if status == 0 || !strings.Contains(log, path) {
		t.Errorf("the agent ends with status %d and says:\n%s", status, log)
	}
}
