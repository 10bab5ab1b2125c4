// SPDX-License-Identifier: Apache-2.0

package divide_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/divide"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestMain(m *testing.M) { fakenode.Main(m) }

// rig is a simulated node with a divider on it.
type rig struct {
	node    *fakenode.Node
	door    *nvml.Door
	store   *checkpoint.Store
	divider *divide.Divider
}

func newRig(t *testing.T, boards ...fakenode.Boards) *rig {
	t.Helper()
	node := fakenode.New(t, boards...)
	door, err := nvml.Open(node.Library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(door.Close)
	store, err := checkpoint.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &rig{node: node, door: door, store: store, divider: &divide.Divider{
		BootID: "boot", Records: store, Hardware: door, Holders: &holders.Finder{Hardware: door, Proc: "/proc"}, Log: logr.Discard(),
	}}
}

func (r *rig) look(t *testing.T) gpu.Node {
	t.Helper()
	look, err := r.door.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return look
}

// at reads "1g.10gb:6".
func at(t *testing.T, text string) gpu.Placement {
	t.Helper()
	profile, start, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(start)
	if err != nil {
		t.Fatal(err)
	}
	return gpu.Placement{Profile: profile, Start: n}
}

func static(t *testing.T, placements ...string) v1alpha1.GPUDecision {
	t.Helper()
	d := v1alpha1.GPUDecision{
		Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Strategy: v1alpha1.MIGStatic, Sharing: v1alpha1.SharingExclusive,
		MemoryPercent: 100, ComputePercent: 100,
	}
	for _, text := range placements {
		p := at(t, text)
		d.Instances = append(d.Instances, v1alpha1.MIGPlacement{Profile: p.Profile, Start: ptr.To(int32(p.Start))})
	}
	return d
}

// want records forms as published, in the order of the GPUs' minors. What is offered is what is there.
func (r *rig) want(t *testing.T, forms ...v1alpha1.GPUDecision) {
	t.Helper()
	look := r.look(t)
	var published checkpoint.Published
	for i, form := range forms {
		form.UUID = look.GPUs[i].UUID
		published.GPUs = append(published.GPUs, checkpoint.PublishedGPU{
			Minor: look.GPUs[i].Minor, Form: form, Facts: checkpoint.FactsOf(look.GPUs[i], look.DriverVersion),
		})
	}
	if err := r.store.SavePublished(published); err != nil {
		t.Fatal(err)
	}
}

// offerAll records what is there as offered.
func (r *rig) offerAll(t *testing.T) {
	t.Helper()
	published, err := r.store.Published()
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range r.look(t).GPUs {
		for _, there := range g.Instances {
			published.GPUs[i].Instances = append(published.GPUs[i].Instances, checkpoint.Standing{
				Placement: checkpoint.Placement{Profile: there.Profile, Start: there.Start, Size: there.Size}, UUID: there.UUID,
			})
		}
	}
	if err := r.store.SavePublished(published); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) divide(t *testing.T) divide.Result {
	t.Helper()
	result, err := r.divider.Divide(t.Context(), r.look(t))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// settled divides until nothing changes any more, and fails where there is trouble.
func (r *rig) settled(t *testing.T) {
	t.Helper()
	for range 5 {
		result := r.divide(t)
		if !result.Changed {
			if len(result.Troubles) > 0 {
				t.Fatalf("troubles: %v", result.Troubles)
			}
			return
		}
	}
	t.Fatal("dividing has no end")
}

// instances are those of a GPU, as "1g.10gb:6"; one without a compute instance ends in an exclamation mark.
func (r *rig) instances(t *testing.T, minor int) []string {
	t.Helper()
	list := []string{}
	for _, i := range r.look(t).GPUs[minor].Instances {
		text := fmt.Sprintf("%s:%d", i.Profile, i.Start)
		if i.UUID == "" {
			text += "!"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

func (r *rig) expect(t *testing.T, when string, minor int, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(append([]string{}, want...), r.instances(t, minor)); diff != "" {
		t.Errorf("instances of GPU %d %s (-want +got):\n%s", minor, when, diff)
	}
}

// foreign makes an instance as somebody else would.
func (r *rig) foreign(t *testing.T, minor int, placement string) {
	t.Helper()
	uuid := r.look(t).GPUs[minor].UUID
	gi, err := r.door.CreateGPUInstance(t.Context(), uuid, at(t, placement))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.door.CreateComputeInstance(t.Context(), uuid, gi); err != nil {
		t.Fatal(err)
	}
}

// claim records a claim that has an instance.
func (r *rig) claim(t *testing.T, minor int, placement string) {
	t.Helper()
	g := r.look(t).GPUs[minor]
	p := at(t, placement)
	profile, _ := g.Profile(p.Profile)
	claims := checkpoint.Claims{BootID: "boot", Claims: map[string]checkpoint.Claim{"uid": {
		UID: "uid", Namespace: "ns", Name: "claim", State: checkpoint.Prepared, Pods: []checkpoint.Pod{{Name: "trainer", UID: "pod-uid"}},
		Results: []checkpoint.Result{{
			GPU: g.UUID, Standing: true, Placement: &checkpoint.Placement{Profile: p.Profile, Start: p.Start, Size: profile.MemorySlices},
		}},
	}}}
	if err := r.store.SaveClaims(claims); err != nil {
		t.Fatal(err)
	}
}

// process is this one, on an instance of the first GPU.
func (r *rig) process(t *testing.T, placement string) {
	t.Helper()
	r.node.CLI(t, "attach", "--gpu", "0", "--pid", strconv.Itoa(os.Getpid()), "--memory", "100", "--instance", placement)
}

func (r *rig) noProcess(t *testing.T) {
	t.Helper()
	r.node.CLI(t, "detach", "--pid", strconv.Itoa(os.Getpid()))
}

func (r *rig) made(t *testing.T, minor int) []string {
	t.Helper()
	made, err := r.store.Made()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, p := range made.GPUs[r.look(t).GPUs[minor].UUID] {
		list = append(list, fmt.Sprintf("%s:%d", p.Profile, p.Start))
	}
	slices.Sort(list)
	return list
}

func noClaims() checkpoint.Claims { return checkpoint.Claims{BootID: "boot"} }

// pid is how this process ends its name as a holder.
func pid() string { return fmt.Sprintf("(%d)", os.Getpid()) }
