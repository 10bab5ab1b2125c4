// SPDX-License-Identifier: Apache-2.0

package agentproc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmd "k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/hook"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// NodeName is the name of every rig's node.
const NodeName = "node"

// Rig is a simulated node with everything that an agent needs of it.
type Rig struct {
	// Node is the simulated hardware.
	Node *fakenode.Node
	// Dir is short, since the paths of sockets are bounded. The agent's directories are below it.
	Dir string
	// Library is what the next agent is to place; "" for nothing.
	Library string
	// Flags are given to agents after the others.
	Flags []string
	// LeaveHardware has agents not killed at what they do to the hardware, where that is only looked at. Each look counts calls
	// in the state of the fake, so that a point would be another one each time.
	LeaveHardware bool
	// Records are the agent's checkpoint.
	Records *checkpoint.Store

	binaries Binaries
	api      *api
}

// New makes the directories and the API server of a node.
func New(tb testing.TB, node *fakenode.Node) *Rig {
	tb.Helper()
	dir, err := os.MkdirTemp("", "slc") //nolint:usetesting // a test's own directory is too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &Rig{Library: Library(), Node: node, Dir: dir, binaries: Build(tb), api: newAPI(tb)}
	if r.Records, err = checkpoint.Open(r.path("state")); err != nil {
		tb.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["stub"] = &clientcmdapi.Cluster{Server: r.api.server.URL}
	config.Contexts["stub"] = &clientcmdapi.Context{Cluster: "stub"}
	config.CurrentContext = "stub"
	if err := clientcmd.WriteToFile(*config, r.path("kubeconfig")); err != nil {
		tb.Fatal(err)
	}
	return r
}

func (r *Rig) path(name string) string { return filepath.Join(r.Dir, name) }

// Look is what NVML shows of the node.
func (r *Rig) Look(tb testing.TB) gpu.Node {
	tb.Helper()
	door, err := nvml.Open(r.Node.Library)
	if err != nil {
		tb.Fatal(err)
	}
	defer door.Close()
	look, err := door.Look(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return look
}

// Publish records forms as published, one for each GPU in the order of their minors.
func (r *Rig) Publish(tb testing.TB, forms ...v1alpha1.GPUDecision) {
	tb.Helper()
	look := r.Look(tb)
	var published checkpoint.Published
	for i, form := range forms {
		form.UUID = look.GPUs[i].UUID
		published.GPUs = append(published.GPUs, checkpoint.PublishedGPU{
			Minor: look.GPUs[i].Minor, Form: form, Facts: checkpoint.FactsOf(look.GPUs[i], look.DriverVersion),
		})
	}
	if err := r.Records.SavePublished(published); err != nil {
		tb.Fatal(err)
	}
}

// Allocate puts a claim into the API server that was allocated the given results.
func (r *Rig) Allocate(name string, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: results},
		}},
	}
	r.api.put(claim)
	return claim
}

// Delete removes a claim from the API server.
func (r *Rig) Delete(claim *resourceapi.ResourceClaim) { r.api.remove(claim) }

// Names are the entries of one of the agent's directories: cdi, or shares without what lies beside them.
func (r *Rig) Names(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(r.path(dir))
	if err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		if dir == "shares" && (e.Name() == limits.LibraryDir || e.Name() == limits.HeartbeatFile || strings.HasPrefix(e.Name(), hook.SocketFile)) {
			continue
		}
		names = append(names, e.Name())
	}
	return names
}
