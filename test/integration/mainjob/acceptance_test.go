// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// got is what a container was started with.
type got struct {
	Name        string
	CDIDevices  []string
	DeviceNodes []struct{ Path string }
}

// containers are those of a running pod.
func (s scene) containers(node string, p *corev1.Pod) []got {
	s.Helper()
	data, err := os.ReadFile(filepath.Join(cluster.Dir, "nodes", node, "pods", string(p.UID)+".json"))
	if err != nil {
		s.Fatal(err)
	}
	var record struct{ Containers []got }
	if err := json.Unmarshal(data, &record); err != nil {
		s.Fatal(err)
	}
	return record.Containers
}

// selecting has a template ask only for devices of which a CEL expression is true.
func selecting(template *resourceapi.ResourceClaimTemplate, expression string) *resourceapi.ResourceClaimTemplate {
	exactly := template.Spec.Spec.Devices.Requests[0].Exactly
	exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	return template
}

// whole is a template of one whole GPU of a pool.
func whole(namespace, name, pool string) *resourceapi.ResourceClaimTemplate {
	template := claimTemplate(namespace, name, pool+".sluice.dev", "1Gi")
	template.Spec.Spec.Devices.Requests[0].Exactly.Capacity = nil
	return template
}

// lengthOfUID is that of the name of a share's directory.
const lengthOfUID = 36

// unused waits until no claim of the namespace has anything, and the node's agent has nothing of one.
func (s scene) unused(node string) {
	s.Helper()
	s.wait("nobody has anything of node "+node, func(ctx context.Context) (bool, error) {
		held, err := allocated(ctx, node)
		if err != nil || len(held) > 0 {
			return false, err
		}
		var n v1alpha1.GPUNode
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return false, err
		}
		for _, g := range n.Status.GPUs {
			if ptr.Deref(g.Tenants, -1) != 0 || len(g.HeldBy) > 0 || len(g.Instances) > 0 {
				return false, nil
			}
		}
		shares, err := os.ReadDir(filepath.Join(cluster.Dir, "nodes", node, "shares"))
		shares = slices.DeleteFunc(shares, func(e os.DirEntry) bool { return len(e.Name()) != lengthOfUID }) // the library is there too
		return len(shares) == 0, err
	})
	if got := s.instances(node); got != 0 {
		s.Errorf("nobody has anything of node %s, and it has %d instances", node, got)
	}
}

func TestWhatADeviceIsStandsInItsAttributes(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "attributes", Pool: "attributes", Board: "h100-80gb", GPUs: 1, MIG: true})
	s.pool(builders.MakePool("attributes").MIG().Obj())
	gpu := s.gpuNode("attributes").Status.GPUs[0]
	device := s.published("attributes")["gpu-0-mig-1g10gb-6"]
	want := map[resourceapi.QualifiedName]string{
		v1alpha1.AttributePool: "attributes", v1alpha1.AttributeSharing: "Exclusive", v1alpha1.AttributeProfile: "1g.10gb",
		v1alpha1.AttributeProduct: gpu.Product, v1alpha1.AttributeArchitecture: gpu.Architecture, v1alpha1.AttributeParentUUID: gpu.UUID,
		v1alpha1.AttributeDriverVersion: s.gpuNode("attributes").Status.DriverVersion, v1alpha1.AttributeUUID: "",
	}
	attributes := map[resourceapi.QualifiedName]string{}
	for name := range want {
		attributes[name] = ptr.Deref(device.Attributes[name].StringValue, "none")
	}
	if diff := cmp.Diff(want, attributes); diff != "" {
		t.Errorf("attributes of an instance (-want +got):\n%s", diff)
	}
	if memory := device.Capacity[v1alpha1.CapacityMemory]; memory.Value.String() != "9984Mi" || len(device.ConsumesCounters) != 1 {
		t.Errorf("the instance has %s of memory and consumes %v", memory.Value.String(), device.ConsumesCounters)
	}
}

// TestPodsShareOneClaim has many pods use one claim at once, again and again. It is allocated with the first and free after the last.
func TestPodsShareOneClaim(t *testing.T) {
	const pods, rounds = 6, 3
	s := newScene(t)
	s.node(stack.Node{Name: "common", Pool: "common", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("common").Obj())
	claim := &resourceapi.ResourceClaim{Spec: claimTemplate("", "", "common.sluice.dev", "4Gi").Spec.Spec}
	claim.Namespace, claim.Name = s.namespace, "common"
	s.create(claim)
	for range rounds {
		var users []*corev1.Pod
		for i := range pods {
			p := builders.MakePod("user-" + strconv.Itoa(i)).Claim("").Obj()
			p.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim.Name}
			users = append(users, s.pod(p))
		}
		s.running(users...)
		want := []string{fmt.Sprintf("k8s.gpu.sluice.dev/claim=%s-0", claim.UID)}
		for _, p := range users {
			if diff := cmp.Diff(want, s.containers("common", p)[0].CDIDevices); diff != "" {
				t.Errorf("devices of pod %s (-want +got):\n%s", p.Name, diff)
			}
		}
		if held, err := allocated(t.Context(), "common"); err != nil || len(held) != 1 {
			t.Errorf("%d claims are allocated for %d pods (%v)", len(held), pods, err)
		}
		s.remove(users...)
		s.unused("common")
	}
}

func TestContainersHaveInstancesOfTheirOwn(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "own", Pool: "own", Board: "h100-80gb", GPUs: 1, MIG: true})
	s.pool(builders.MakePool("own").MIG().Obj())
	pod := s.pod(builders.MakePod("two").Pool("own").Memory("9Gi").Container("other").Memory("9Gi").Obj())
	s.running(pod)
	results := s.results(pod)
	if len(results) != 2 || results[0].Device == results[1].Device {
		t.Fatalf("the pod was given %v", results)
	}
	s.wait("the node tells of two instances", func(context.Context) (bool, error) {
		there := s.gpuNode("own").Status.GPUs[0].Instances
		return len(there) == 2 && there[0].UUID != "" && there[1].UUID != "" && there[0].UUID != there[1].UUID &&
			slices.Contains(there[0].HeldBy, s.namespace+"/two") && slices.Contains(there[1].HeldBy, s.namespace+"/two"), nil
	})
	containers := s.containers("own", pod)
	caps := map[string]string{} // by device node, who may open it
	for _, c := range containers {
		own := 0
		for _, n := range c.DeviceNodes {
			if filepath.Dir(n.Path) != "/dev/nvidia-caps" {
				continue
			}
			own++
			if other, taken := caps[n.Path]; taken {
				t.Errorf("containers %s and %s both have %s", other, c.Name, n.Path)
			}
			caps[n.Path] = c.Name
		}
		if len(c.CDIDevices) != 1 || own != 2 {
			t.Errorf("container %s has CDI devices %v and device nodes %v", c.Name, c.CDIDevices, c.DeviceNodes)
		}
	}
}

func TestContainersShareAClaimFromATemplate(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "shares", Pool: "shares", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("shares").Obj())
	s.create(claimTemplate(s.namespace, "share", "shares.sluice.dev", "4Gi"))
	made := builders.MakePod("two").Claim("share").Container("other").Obj()
	made.Spec.Containers[1].Resources.Claims = made.Spec.Containers[0].Resources.Claims
	pod := s.pod(made)
	s.running(pod)
	containers := s.containers("shares", pod)
	if diff := cmp.Diff(containers[0].CDIDevices, containers[1].CDIDevices); diff != "" || len(containers[0].CDIDevices) != 1 {
		t.Errorf("devices of the containers (-one +other):\n%s", diff)
	}
}

func TestAGPUIsChosenByWhatItIs(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "chosen-a", Pool: "chosen", Board: "a100-80gb", GPUs: 1})
	s.node(stack.Node{Name: "chosen-h", Pool: "chosen", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("chosen").Obj())
	s.wait("both nodes offer their GPU", func(context.Context) (bool, error) {
		return len(s.published("chosen-a")) == 1 && len(s.published("chosen-h")) == 1, nil
	})
	for name, want := range map[string]string{"Ampere": "chosen-a", "Hopper": "chosen-h"} {
		template := claimTemplate(s.namespace, "of-"+want, "chosen.sluice.dev", "4Gi")
		s.create(selecting(template, fmt.Sprintf(`device.attributes["gpu.sluice.dev"].architecture == %q`, name)))
		pod := s.pod(builders.MakePod("on-" + want).Claim("of-" + want).Obj())
		s.running(pod)
		if pod.Spec.NodeName != want {
			t.Errorf("who asks for %s is on %s, want %s", name, pod.Spec.NodeName, want)
		}
	}
	s.create(selecting(claimTemplate(s.namespace, "none", "chosen.sluice.dev", "4Gi"), `device.attributes["gpu.sluice.dev"].product == "NVIDIA H1000"`))
	s.unschedulable(s.pod(builders.MakePod("none").Claim("none").Obj()))
}

// TestADrainsGainIsReported leaves a small instance in each half of a GPU.
func TestADrainsGainIsReported(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "gain", Pool: "gain", Board: "h100-80gb", GPUs: 1, MIG: true})
	s.pool(builders.MakePool("gain").MIG().Obj())
	var pods, leaving []*corev1.Pod
	for i := range 7 {
		pods = append(pods, s.pod(builders.MakePod("p"+strconv.Itoa(i)).Pool("gain").Memory("9Gi").Obj()))
	}
	s.running(pods...)
	for _, p := range pods {
		if device := s.device(p); device != "gpu-0-mig-1g10gb-0" && device != "gpu-0-mig-1g10gb-6" {
			leaving = append(leaving, p)
		}
	}
	s.remove(leaving...)
	s.wait("the pool says that a drain would make room", func(ctx context.Context) (bool, error) {
		var p v1alpha1.GPUPool
		err := cluster.Client.Get(ctx, client.ObjectKey{Name: "gain"}, &p)
		i := slices.IndexFunc(p.Status.Repacking, func(g v1alpha1.RepackingGain) bool { return g.Profile == "3g.40gb" })
		return i >= 0 && *p.Status.Repacking[i].Now == 0 && *p.Status.Repacking[i].AfterDrain == 1, err
	})
}
