// SPDX-License-Identifier: Apache-2.0

// Package enforcement_test prepares shares over the agent's real socket and runs CUDA programs with exactly what the CDI
// spec gives their containers: the node's half and the library together.
package enforcement_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/container"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestMain(m *testing.M) {
	container.Inside()
	fakenode.Main(m, agentproc.Clean)
}

const mebi = 1 << 20

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

func device(name string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: v1alpha1.DriverName, Pool: agentproc.NodeName, Device: name,
	}
}

// share is one of 8 GiB.
func share(name string) resourceapi.DeviceRequestAllocationResult {
	r := device(name)
	r.ShareID = ptr.To(types.UID("share-of-" + name))
	r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		v1alpha1.CapacityMemory: *resource.NewQuantity(limit, resource.BinarySI), v1alpha1.CapacityCompute: resource.MustParse("30"),
		v1alpha1.CapacitySlots: resource.MustParse("1"),
	}
	return r
}

// node is a node whose shares lie on a file system of their own, as they must, with an agent.
type node struct {
	*agentproc.Rig
	agent *agentproc.Agent
}

func newNode(t *testing.T, forms ...v1alpha1.GPUDecision) *node {
	t.Helper()
	return nodeWith(t, fakenode.Driver{}, nil, forms...)
}

func nodeWith(t *testing.T, driver fakenode.Driver, flags []string, forms ...v1alpha1.GPUDecision) *node {
	t.Helper()
	programs := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-s", "-C", repository("interceptor", "tests", "programs"))
	if out, err := programs.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
	rig := agentproc.New(t, fakenode.With(t, driver, fakenode.Boards{Board: "h200-141gb", Count: len(forms)}))
	rig.Flags = flags
	shares := filepath.Join(rig.Dir, "shares")
	if err := os.Mkdir(shares, 0o711); err != nil {
		t.Fatal(err)
	}
	// The way it is on many nodes: /run runs no programs.
	if err := unix.Mount("shares", shares, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=16m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(shares, unix.MNT_DETACH) })
	rig.Publish(t, forms...)
	return &node{Rig: rig, agent: rig.Start(t)}
}

func repository(elem ...string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(here), "..", "..", ".."}, elem...)...)
}

// prepare prepares a claim as kubelet does and returns the plan of its container: what the runtime makes of the CDI devices
// that kubelet was given.
func (n *node) prepare(t *testing.T, claim *resourceapi.ResourceClaim) container.Plan {
	t.Helper()
	devices, err := n.agent.Prepare(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, d := range devices {
		for _, id := range d.GetCdiDeviceIds() {
			ids[id] = true
		}
	}
	return n.plan(t, ids)
}

// edits are what a CDI spec changes of a container, as far as a program without hooks needs it.
type edits struct {
	Env    []string
	Mounts []container.Mount
	Hooks  []startHook
}

// startHook is a program that the runtime runs.
type startHook struct {
	HookName string
	Path     string
	Args     []string
}

func (n *node) plan(t *testing.T, ids map[string]bool) container.Plan {
	t.Helper()
	plan := container.Plan{Shared: []string{filepath.Dir(n.Node.State), repository("interceptor", "build", "tests")}, Env: n.Node.Environment()}
	for _, name := range n.Names(t, "cdi") {
		data, err := os.ReadFile(filepath.Join(n.Dir, "cdi", name))
		if err != nil {
			t.Fatal(err)
		}
		var spec struct {
			Kind           string
			ContainerEdits edits
			Devices        []struct {
				Name           string
				ContainerEdits edits
			}
		}
		if err := json.Unmarshal(data, &spec); err != nil {
			t.Fatal(err)
		}
		used := false
		for _, d := range spec.Devices {
			if ids[spec.Kind+"="+d.Name] {
				used = true
				plan.Env, plan.Mounts = append(plan.Env, d.ContainerEdits.Env...), append(plan.Mounts, d.ContainerEdits.Mounts...)
			}
		}
		if used {
			plan.Env, plan.Mounts = append(plan.Env, spec.ContainerEdits.Env...), append(plan.Mounts, spec.ContainerEdits.Mounts...)
		}
	}
	// What the driver's hooks do: the library is found under the name that programs ask for.
	for _, m := range plan.Mounts {
		if strings.HasPrefix(filepath.Base(m.ContainerPath), "libcuda.so.") {
			soname := m
			soname.ContainerPath = "/opt/driver/libcuda.so.1"
			plan.Mounts = append(plan.Mounts, soname)
			break
		}
	}
	plan.Env = append(plan.Env, "LD_LIBRARY_PATH=/opt/driver")
	return plan
}
