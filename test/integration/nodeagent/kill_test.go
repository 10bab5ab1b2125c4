// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/fakemps"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// killCase is a claim that is prepared and released, with a kill at each point of either.
type killCase struct {
	name    string
	boards  []fakenode.Boards
	forms   []v1alpha1.GPUDecision
	results []resourceapi.DeviceRequestAllocationResult
	// filesOnly is true where nothing is done to the hardware.
	filesOnly bool
	// prepared are the instances while it is prepared, and the MIG modes.
	prepared left
	released left
}

func killCases() []killCase {
	return []killCase{
		{
			name:     "a share",
			boards:   []fakenode.Boards{{Board: "h100-80gb", Count: 1}},
			forms:    []v1alpha1.GPUDecision{shared()},
			results:  []resourceapi.DeviceRequestAllocationResult{share("10Gi")},
			prepared: left{Instances: []string{}, MIGMode: []bool{false}},
			released: left{Instances: []string{}, MIGMode: []bool{false}},
		},
		{
			name:      "a share by MPS, the first of its device",
			boards:    []fakenode.Boards{{Board: "h100-80gb", Count: 1}},
			forms:     []v1alpha1.GPUDecision{byMPS()},
			results:   []resourceapi.DeviceRequestAllocationResult{share("10Gi")},
			filesOnly: true,
			prepared:  left{Instances: []string{}, MIGMode: []bool{false}, Daemons: 1, MPS: 1},
			released:  left{Instances: []string{}, MIGMode: []bool{false}},
		},
		{
			name:   "two MIG instances on a GPU whose MIG mode is off, beside a device of another driver",
			boards: []fakenode.Boards{{Board: "h100-80gb", Count: 1}},
			forms:  []v1alpha1.GPUDecision{divided()},
			results: []resourceapi.DeviceRequestAllocationResult{
				foreign(), device("gpu-0-mig-1g10gb-6"), device("gpu-0-mig-3g40gb-0"),
			},
			prepared: left{Instances: []string{"gpu-0 1g.10gb:6", "gpu-0 3g.40gb:0"}, MIGMode: []bool{true}},
			released: left{Instances: []string{}, MIGMode: []bool{false}},
		},
	}
}

// TestAgentKilledInPrepare kills the agent at each change that Prepare makes. Each time a new agent must have nothing of a
// claim that is not prepared, kubelet's next call must prepare it exactly once, and releasing it must leave nothing.
func TestAgentKilledInPrepare(t *testing.T) {
	for _, tc := range killCases() {
		t.Run(tc.name, func(t *testing.T) {
			rig, claim := tc.rig(t)
			points := tc.sweep(t, rig, func(n int) bool {
				agent := rig.StartToBeKilled(t, n)
				agent.Arm(t)
				_, err := agent.Prepare(t.Context(), claim)
				if err == nil {
					agent.Finish(t)
				} else {
					count, call := agent.Cut(t)
					t.Logf("cut off before change %d, %s", count, call)
				}
				tc.recovers(t, rig, claim)
				return err == nil
			})
			t.Logf("%d points", points)
		})
	}
}

// TestAgentKilledInUnprepare kills the agent at each change that Unprepare makes. Each time kubelet's next call must leave
// nothing.
func TestAgentKilledInUnprepare(t *testing.T) {
	for _, tc := range killCases() {
		t.Run(tc.name, func(t *testing.T) {
			rig, claim := tc.rig(t)
			points := tc.sweep(t, rig, func(n int) bool {
				agent := rig.StartToBeKilled(t, n)
				if _, err := agent.Prepare(t.Context(), claim); err != nil {
					t.Fatal(err)
				}
				agent.Arm(t)
				err := agent.Unprepare(t.Context(), claim)
				if err == nil {
					agent.Finish(t)
				} else {
					count, call := agent.Cut(t)
					t.Logf("cut off before change %d, %s", count, call)
				}
				again := rig.Start(t)
				if err := again.Unprepare(t.Context(), claim); err != nil {
					t.Errorf("kubelet's next Unprepare: %v", err)
				}
				expect(t, "after the claim was released", rig, tc.nothing())
				again.Kill()
				return err == nil
			})
			t.Logf("%d points", points)
		})
	}
}

// TestAgentKilledWhileItRecovers kills the agent in the middle of Prepare and then the next one at each change that its
// start makes.
func TestAgentKilledWhileItRecovers(t *testing.T) {
	tc := killCases()[2]
	rig, claim := tc.rig(t)
	middle := tc.middle(t, rig, claim)
	points := tc.sweep(t, rig, func(n int) bool {
		cutOff(t, rig, claim, middle)
		survived := rig.RecoverToBeKilled(t, n)
		tc.recovers(t, rig, claim)
		return survived
	})
	t.Logf("%d points", points)
}

// middle is a point of Prepare at which the first of two instances is there and the second is not.
func (tc killCase) middle(t *testing.T, rig *agentproc.Rig, claim *resourceapi.ResourceClaim) int {
	t.Helper()
	const most, step = 1000, 5
	for n := step; n < most; n += step {
		cutOff(t, rig, claim, n)
		found := len(leftOn(t, rig).Instances)
		tc.recovers(t, rig, claim)
		if found == 1 {
			return n
		}
	}
	t.Fatal("no point of Prepare has one of two instances")
	return 0
}

// cutOff kills an agent at a point of Prepare.
func cutOff(t *testing.T, rig *agentproc.Rig, claim *resourceapi.ResourceClaim, n int) {
	t.Helper()
	agent := rig.StartToBeKilled(t, n)
	agent.Arm(t)
	if _, err := agent.Prepare(t.Context(), claim); err == nil {
		t.Fatalf("Prepare was over before change %d", n)
	}
	agent.Cut(t)
}

func (tc killCase) rig(t *testing.T) (*agentproc.Rig, *resourceapi.ResourceClaim) {
	t.Helper()
	rig := agentproc.New(t, fakenode.New(t, tc.boards...))
	rig.Publish(t, tc.forms...)
	rig.LeaveHardware = tc.filesOnly
	fakemps.Install(t, rig.Node.Root)
	t.Cleanup(func() { endDaemons(t, rig) })
	return rig, rig.Allocate("claim", tc.results...)
}

// sweep tries one point after the other until one is beyond the last.
func (tc killCase) sweep(t *testing.T, rig *agentproc.Rig, try func(n int) (survived bool)) int {
	t.Helper()
	const most = 1000
	for n := 1; n < most; n++ {
		done := false
		if !t.Run(fmt.Sprintf("point %d", n), func(*testing.T) { done = try(n) }) {
			t.Fatalf("stopping at the first point that is not survived: %+v", leftOn(t, rig))
		}
		if done {
			return n - 1
		}
	}
	t.Fatalf("no end after %d points", most)
	return 0
}

// recovers is what must hold after a kill, whatever was there.
func (tc killCase) recovers(t *testing.T, rig *agentproc.Rig, claim *resourceapi.ResourceClaim) {
	t.Helper()
	agent := rig.Start(t)
	defer agent.Kill()
	now := leftOn(t, rig)
	switch state := now.Claims[string(claim.UID)]; state {
	case "":
		expect(t, "after the start of the next agent, which does not know the claim", rig, tc.nothing())
	case checkpoint.Prepared:
		expect(t, "after the start of the next agent, which knows the claim", rig, tc.everything(claim))
	default:
		t.Errorf("after the start of the next agent the claim is %s", state)
	}
	devices, err := agent.Prepare(t.Context(), claim)
	if err != nil {
		t.Fatalf("kubelet's next Prepare: %v", err)
	}
	tc.answers(t, claim, devices)
	expect(t, "after kubelet's next Prepare", rig, tc.everything(claim))
	again, err := agent.Prepare(t.Context(), claim)
	if err != nil {
		t.Fatalf("Prepare of a prepared claim: %v", err)
	}
	if diff := cmp.Diff(fmt.Sprint(devices), fmt.Sprint(again)); diff != "" {
		t.Errorf("Prepare of a prepared claim answers otherwise (-first +second):\n%s", diff)
	}
	expect(t, "after a second Prepare", rig, tc.everything(claim))
	if err := agent.Unprepare(t.Context(), claim); err != nil {
		t.Fatalf("Unprepare: %v", err)
	}
	expect(t, "after Unprepare", rig, tc.nothing())
}

// answers checks that each result of the claim has its own CDI device.
func (tc killCase) answers(t *testing.T, claim *resourceapi.ResourceClaim, devices []*dra.Device) {
	t.Helper()
	var want, got []string
	for i, r := range tc.results {
		if r.Driver == v1alpha1.DriverName {
			want = append(want, fmt.Sprintf("%s k8s.gpu.sluice.dev/claim=%s-%d", r.Device, claim.UID, i))
		}
	}
	for _, d := range devices {
		for _, id := range d.GetCdiDeviceIds() {
			got = append(got, d.GetDeviceName()+" "+id)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func (tc killCase) nothing() left {
	l := tc.released
	l.Claims, l.Shares = map[string]checkpoint.State{}, []string{}
	return l
}

func (tc killCase) everything(claim *resourceapi.ResourceClaim) left {
	l := tc.prepared
	l.Claims = map[string]checkpoint.State{string(claim.UID): checkpoint.Prepared}
	l.Shares, l.Specs = []string{string(claim.UID)}, 1
	return l
}
