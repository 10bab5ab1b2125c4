// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// layout is a static decision for these instances.
func layout(sharing v1alpha1.SharingMode, placements ...gpu.Placement) v1alpha1.GPUDecision {
	d := divided()
	d.Strategy, d.Sharing, d.MaxTenants = v1alpha1.MIGStatic, sharing, 4
	for _, p := range placements {
		d.Instances = append(d.Instances, v1alpha1.MIGPlacement{Profile: p.Profile, Start: ptr.To(int32(p.Start))})
	}
	return d
}

func halves() []gpu.Placement {
	return []gpu.Placement{{Profile: "3g.40gb", Start: 0}, {Profile: "3g.40gb", Start: 4}}
}

func mixed() []gpu.Placement {
	return []gpu.Placement{{Profile: "1g.10gb", Start: 0}, {Profile: "3g.40gb", Start: 4}}
}

// publishLayout records a static form, with all of its instances offered as they were before whatever happened.
func publishLayout(t *testing.T, rig *agentproc.Rig, form v1alpha1.GPUDecision) {
	t.Helper()
	rig.Publish(t, form)
	published, err := rig.Records.Published()
	if err != nil {
		t.Fatal(err)
	}
	g := &published.GPUs[0]
	facts := g.Facts.GPU()
	for _, p := range form.Instances {
		profile, _ := facts.Profile(p.Profile)
		g.Instances = append(g.Instances, checkpoint.Standing{
			Placement: checkpoint.Placement{Profile: p.Profile, Start: int(*p.Start), Size: profile.MemorySlices}, UUID: "MIG-of-before",
			MemoryBytes: profile.MemoryBytes, Compute: profile.Compute(facts.ComputeSlices),
		})
	}
	if err := rig.Records.SavePublished(published); err != nil {
		t.Fatal(err)
	}
}

// expectLayout checks that the complete instances of the one GPU, and those that are recorded as made, are these.
func expectLayout(t *testing.T, when string, rig *agentproc.Rig, want []gpu.Placement) {
	t.Helper()
	g := rig.Look(t).GPUs[0]
	var there, recorded []string
	for _, i := range g.Instances {
		if i.UUID == "" {
			t.Errorf("%s %s at %d has no compute instance", when, i.Profile, i.Start)
		}
		there = append(there, fmt.Sprintf("%s:%d", i.Profile, i.Start))
	}
	made, err := rig.Records.Made()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range made.GPUs[g.UUID] {
		recorded = append(recorded, fmt.Sprintf("%s:%d", p.Profile, p.Start))
	}
	var wanted []string
	for _, p := range want {
		wanted = append(wanted, fmt.Sprintf("%s:%d", p.Profile, p.Start))
	}
	for _, list := range [][]string{there, recorded, wanted} {
		slices.Sort(list)
	}
	if diff := cmp.Diff(wanted, there); diff != "" {
		t.Errorf("instances %s (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(wanted, recorded); diff != "" {
		t.Errorf("recorded instances %s (-want +got):\n%s", when, diff)
	}
}

// instanceShare is a share of a MIG instance of gpu-0.
func instanceShare(name, share, memory, compute string) resourceapi.DeviceRequestAllocationResult {
	r := device(name)
	r.ShareID = ptr.To(types.UID(share))
	r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		v1alpha1.CapacityMemory: resource.MustParse(memory), v1alpha1.CapacityCompute: resource.MustParse(compute),
		v1alpha1.CapacitySlots: resource.MustParse("1"),
	}
	return r
}

// TestAgentKilledWhileItBringsALayoutBack boots the node and kills the agent at each change that its start makes. The next
// one must have the layout, without the API server, before it serves: and a claim of before the boot its instance.
func TestAgentKilledWhileItBringsALayoutBack(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	rig.Library = "" // placing it takes many changes of its own
	publishLayout(t, rig, layout(v1alpha1.SharingExclusive, halves()...))
	claim := rig.Allocate("claim", device("gpu-0-mig-3g40gb-4"))
	points := killCase{}.sweep(t, rig, func(n int) bool {
		rig.Node.CLI(t, "reboot")
		rig.Reboot(t)
		survived := rig.RecoverToBeKilled(t, n)
		agent := rig.Start(t)
		defer agent.Kill()
		expectLayout(t, "after the start of the next agent", rig, halves())
		if _, err := agent.Prepare(t.Context(), claim); err != nil {
			t.Errorf("kubelet's next Prepare: %v", err)
		}
		return survived
	})
	t.Logf("%d points", points)
}

// TestAgentKilledWhileItChangesALayout kills the agent at each change on the way from one layout to another.
func TestAgentKilledWhileItChangesALayout(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	rig.Library = "" // placing it takes many changes of its own
	points := killCase{}.sweep(t, rig, func(n int) bool {
		publishLayout(t, rig, layout(v1alpha1.SharingExclusive, halves()...))
		first := rig.Start(t)
		expectLayout(t, "before the change", rig, halves())
		first.Kill()
		publishLayout(t, rig, layout(v1alpha1.SharingExclusive, mixed()...))
		survived := rig.RecoverToBeKilled(t, n)
		agent := rig.Start(t)
		defer agent.Kill()
		expectLayout(t, "after the change", rig, mixed())
		return survived
	})
	t.Logf("%d points", points)
}

// TestSharesOfAnInstance prepares two claims on one MIG instance and sees that each has its part of it.
func TestSharesOfAnInstance(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1}))
	publishLayout(t, rig, layout(v1alpha1.SharingSoftware, mixed()...))
	agent := rig.Start(t)
	const name = "gpu-0-mig-3g40gb-4"
	first := rig.Allocate("first", instanceShare(name, "one", "20Gi", "21"))
	second := rig.Allocate("second", instanceShare(name, "two", "15Gi", "10"))
	third := rig.Allocate("third", instanceShare(name, "three", "10Gi", "1"))
	whole := rig.Allocate("whole", device("gpu-0-mig-1g10gb-0"))
	for _, claim := range []*resourceapi.ResourceClaim{first, second} {
		if _, err := agent.Prepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	rig.Delete(first)
	if _, err := agent.Prepare(t.Context(), third); err == nil || !strings.Contains(err.Error(), "still held by claim tenant/first") {
		t.Errorf("a share beyond what the instance has: %v", err)
	}
	if _, err := agent.Prepare(t.Context(), whole); err == nil || !strings.Contains(err.Error(), "published in shares") {
		t.Errorf("an instance as a whole: %v", err)
	}
	claims, err := rig.Records.Claims()
	if err != nil {
		t.Fatal(err)
	}
	uuids := map[string]bool{}
	for _, claim := range claims.Claims {
		uuids[claim.Results[0].Instance.UUID] = true
	}
	if len(uuids) != 1 {
		t.Errorf("the two shares of one instance are on %v", uuids)
	}
	for _, claim := range []*resourceapi.ResourceClaim{first, second} {
		if err := agent.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	expectLayout(t, "after the shares were released", rig, mixed())
}
