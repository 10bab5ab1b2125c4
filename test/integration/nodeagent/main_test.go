// SPDX-License-Identifier: Apache-2.0

// Package nodeagent_test drives the node agent's binary over a simulated node as kubelet does, and kills it at every point
// between two of its changes.
package nodeagent_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/fakemps"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestMain(m *testing.M) { fakenode.Main(m, agentproc.Clean) }

func shared() v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{
		Pool: "shared", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware,
		MemoryPercent: 150, ComputePercent: 200, MaxTenants: 8,
	}
}

func exclusive() v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{
		Pool: "exclusive", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingExclusive,
		MemoryPercent: 100, ComputePercent: 100,
	}
}

func divided() v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{
		Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive,
		MemoryPercent: 100, ComputePercent: 100,
	}
}

func device(name string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: v1alpha1.DriverName, Pool: agentproc.NodeName, Device: name,
	}
}

// share is one of gpu-0.
func share(memory string) resourceapi.DeviceRequestAllocationResult {
	r := device("gpu-0")
	r.ShareID = ptr.To(types.UID("share-of-gpu-0"))
	r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		v1alpha1.CapacityMemory: resource.MustParse(memory), v1alpha1.CapacityCompute: resource.MustParse("30"),
		v1alpha1.CapacitySlots: resource.MustParse("1"),
	}
	return r
}

func foreign() resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Request: "nic", Driver: "nic.example.com", Pool: "fabric", Device: "gpu-0"}
}

// left is everything on a node that a claim can leave behind.
type left struct {
	Claims    map[string]checkpoint.State
	Shares    []string
	Specs     int
	Instances []string
	MIGMode   []bool
	// Daemons counts those of MPS, and MPS the devices that have files of one.
	Daemons, MPS int
}

func leftOn(t *testing.T, rig *agentproc.Rig) left {
	t.Helper()
	claims, err := rig.Records.Claims()
	if err != nil {
		t.Fatal(err)
	}
	l := left{
		Claims: map[string]checkpoint.State{}, Shares: rig.Names(t, "shares"), Specs: len(rig.Names(t, "cdi")), Instances: []string{},
		MPS: len(rig.Names(t, "mps")),
	}
	daemons, err := fakemps.Daemons(filepath.Join(rig.Dir, "mps"))
	if err != nil {
		t.Fatal(err)
	}
	l.Daemons = len(daemons)
	for uid, claim := range claims.Claims {
		l.Claims[uid] = claim.State
	}
	for _, g := range rig.Node.Show(t).GPUs {
		l.MIGMode = append(l.MIGMode, g.MIGMode.Current)
		for _, i := range g.Instances {
			l.Instances = append(l.Instances, fmt.Sprintf("gpu-%d %s:%d", g.Minor, i.Profile, i.Start))
		}
	}
	slices.Sort(l.Instances)
	return l
}

func expect(t *testing.T, when string, rig *agentproc.Rig, want left) {
	t.Helper()
	if diff := cmp.Diff(want, leftOn(t, rig)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}
