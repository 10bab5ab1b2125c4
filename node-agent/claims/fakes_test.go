// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/library"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

var errInjected = errors.New("injected")

// outside is everything outside of the package in memory. Each call is noted; the call whose number is failAt fails.
type outside struct {
	node      gpu.Node
	specs     map[string][]Grant
	shares    map[string][]limits.Share
	api       map[string]*resourceapi.ResourceClaim
	users     map[string]string
	recorded  checkpoint.Claims
	published checkpoint.Published
	// own is the version of the library that new shares get, placed those that are there.
	own    string
	placed []string
	clock  *testclock.FakeClock
	// holders are the processes on every GPU.
	holders []nvml.Holder

	mps    mpsDoor
	limits limitsDoor

	calls  []string
	failAt int
	nextGI int
}

func newOutside(gpus []gpu.GPU, forms ...v1alpha1.GPUDecision) *outside {
	o := &outside{
		node:  gpu.Node{DriverVersion: "580", GPUs: gpus},
		specs: map[string][]Grant{}, shares: map[string][]limits.Share{}, api: map[string]*resourceapi.ResourceClaim{},
		recorded: checkpoint.Claims{Version: 1, BootID: "boot", Claims: map[string]checkpoint.Claim{}},
		own:      "v1",
		clock:    testclock.NewFakeClock(time.Unix(1_000_000, 0)),
		failAt:   -1,
	}
	for i, form := range forms {
		form.UUID = gpus[i].UUID
		o.published.GPUs = append(o.published.GPUs, checkpoint.PublishedGPU{
			Minor: gpus[i].Minor, Form: form, Facts: checkpoint.FactsOf(gpus[i], "580"),
		})
	}
	return o
}

func (o *outside) preparer() *Preparer {
	return &Preparer{
		NodeName: "node", BootID: "boot", Records: o, Hardware: o, Specs: specDoor{o}, Shares: shareDoor{o}, Library: libraryDoor{o}, Contexts: o, MPS: &o.mps, Limits: &o.limits, API: o,
		Clock: o.clock, Log: logr.Discard(),
	}
}

func (o *outside) call(format string, args ...any) error {
	o.calls = append(o.calls, fmt.Sprintf(format, args...))
	if len(o.calls)-1 == o.failAt {
		return errInjected
	}
	return nil
}

func (*outside) Context(checkpoint.Result) uint64 { return shares.ContextBytes }

func (o *outside) Lock() (func(), error) { return func() {}, nil }

func (o *outside) Claims() (checkpoint.Claims, error) {
	c := o.recorded
	c.Claims = maps.Clone(c.Claims)
	c.MIGModeFoundOff = slices.Clone(c.MIGModeFoundOff)
	return c, nil
}

func (o *outside) SaveClaims(c checkpoint.Claims) error {
	if err := o.call("save"); err != nil {
		return err
	}
	c.Claims = maps.Clone(c.Claims)
	c.MIGModeFoundOff = slices.Clone(c.MIGModeFoundOff)
	o.recorded = c
	return nil
}

func (o *outside) Published() (checkpoint.Published, error) { return o.published, nil }

func (o *outside) Get(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	return o.api[namespace+"/"+name], nil
}

func (o *outside) User(_ context.Context, namespace, claim string) (string, error) {
	return o.users[namespace+"/"+claim], nil
}

func (o *outside) Look(context.Context) (gpu.Node, error) {
	n := o.node
	n.GPUs = slices.Clone(n.GPUs)
	for i := range n.GPUs {
		n.GPUs[i].Instances = slices.Clone(n.GPUs[i].Instances)
	}
	if err := o.call("look"); err != nil {
		return gpu.Node{}, err
	}
	return n, nil
}

func (o *outside) CreateGPUInstance(_ context.Context, uuid string, p gpu.Placement) (int, error) {
	if err := o.call("create GI %s:%d", p.Profile, p.Start); err != nil {
		return 0, err
	}
	g := o.node.ByUUID(uuid)
	if g.MIGMode != gpu.MIGEnabled {
		return 0, errors.New("MIG mode is off")
	}
	o.nextGI++
	g.Instances = append(g.Instances, gpu.Instance{Profile: p.Profile, Start: p.Start, GIID: o.nextGI, CIID: -1})
	return o.nextGI, nil
}

func (o *outside) CreateComputeInstance(_ context.Context, uuid string, gi int) (int, string, error) {
	if err := o.call("create CI"); err != nil {
		return 0, "", err
	}
	g := o.node.ByUUID(uuid)
	for i := range g.Instances {
		if g.Instances[i].GIID == gi {
			g.Instances[i].CIID, g.Instances[i].UUID = 0, fmt.Sprintf("MIG-%d", gi)
		}
	}
	return 0, fmt.Sprintf("MIG-%d", gi), nil
}

func (o *outside) DestroyInstance(_ context.Context, uuid string, gi int) error {
	if err := o.call("destroy"); err != nil {
		return err
	}
	g := o.node.ByUUID(uuid)
	g.Instances = slices.DeleteFunc(g.Instances, func(i gpu.Instance) bool { return i.GIID == gi })
	return nil
}

func (o *outside) SetMIGMode(_ context.Context, uuid string, on bool) error {
	if err := o.call("MIG mode %v", on); err != nil {
		return err
	}
	o.node.ByUUID(uuid).MIGMode = gpu.MIGDisabled
	if on {
		o.node.ByUUID(uuid).MIGMode = gpu.MIGEnabled
	}
	return nil
}

func (o *outside) Holders(context.Context, string) ([]nvml.Holder, error) { return o.holders, nil }

type specDoor struct{ *outside }

func (d specDoor) Write(uid string, grants []Grant) ([]string, error) {
	if err := d.call("write spec"); err != nil {
		return nil, err
	}
	d.specs[uid] = grants
	var ids []string
	for _, g := range grants {
		ids = append(ids, "cdi="+uid+"-"+g.Name)
	}
	return ids, nil
}

func (d specDoor) Remove(uid string) error {
	delete(d.specs, uid)
	return d.call("remove spec")
}

func (d specDoor) List() ([]string, error) { return slices.Sorted(maps.Keys(d.specs)), nil }

type shareDoor struct{ *outside }

func (d shareDoor) Write(s limits.Share) (string, error) {
	if err := d.call("write share"); err != nil {
		return "", err
	}
	d.shares[s.ClaimUID] = append(d.shares[s.ClaimUID], s)
	return fmt.Sprintf("/shares/%s/%d", s.ClaimUID, s.Index), nil
}

func (d shareDoor) SetPolicy(uid string, index int, policy uint32) error {
	if err := d.call("set policy"); err != nil {
		return err
	}
	for i, s := range d.shares[uid] {
		if s.Index == index {
			d.shares[uid][i].Policy = policy
		}
	}
	return nil
}

func (d shareDoor) Remove(uid string) error {
	delete(d.shares, uid)
	return d.call("remove share")
}

func (d shareDoor) List() ([]string, error) { return slices.Sorted(maps.Keys(d.shares)), nil }

type libraryDoor struct{ *outside }

func (d libraryDoor) Place(version string) (library.Placed, error) {
	if err := d.call("place library"); err != nil {
		return library.Placed{}, err
	}
	version = cmp.Or(version, d.own)
	if version == "" {
		return library.Placed{}, nil
	}
	if version != d.own && !d.Holds(version) {
		return library.Placed{}, library.ErrGone
	}
	if !d.Holds(version) {
		d.outside.placed = append(d.outside.placed, version)
	}
	return library.Placed{
		Version: version, File: "/lib/" + version + ".so", Preload: "/lib/" + version + ".preload", ContainerFile: "/inside/" + version + ".so",
		Heartbeat: "/shares/heartbeat",
	}, nil
}

func (d libraryDoor) Holds(version string) bool { return slices.Contains(d.outside.placed, version) }

func (d libraryDoor) Sweep(inUse []string) error {
	d.outside.placed = slices.DeleteFunc(d.outside.placed, func(v string) bool { return v != d.own && !slices.Contains(inUse, v) })
	return nil
}

// h100 is a GPU of 80 GiB, for simplicity, with two profiles.
func h100(minor int, change ...func(*gpu.GPU)) gpu.GPU {
	g := gpu.GPU{
		UUID: fmt.Sprintf("GPU-%d", minor), Minor: minor, Product: "H100", MemoryBytes: 80 << 30,
		MIGMode: gpu.MIGDisabled, MIGModeSwitchable: true, MemorySlices: 8, ComputeSlices: 7,
		Profiles: []gpu.Profile{
			{Name: "1g.10gb", ID: 0, MemoryBytes: 9 << 30, ComputeSlices: 1, MemorySlices: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7},
			{Name: "3g.40gb", ID: 2, MemoryBytes: 40 << 30, ComputeSlices: 3, MemorySlices: 4, Starts: []int{0, 4}, Max: 2},
		},
	}
	for _, c := range change {
		c(&g)
	}
	return g
}

func migOn(g *gpu.GPU)  { g.MIGMode = gpu.MIGEnabled }
func ampere(g *gpu.GPU) { g.MIGModeSwitchable = false }

func shared() v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{
		Pool: "shared", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware,
		MemoryPercent: 150, ComputePercent: 200, MaxTenants: 4,
	}
}

func exclusive() v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{
		Pool: "exclusive", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingExclusive,
		MemoryPercent: 100, ComputePercent: 100,
	}
}

func divided() v1alpha1.GPUDecision {
	d := exclusive()
	d.Pool, d.Partitioning = "mig", v1alpha1.PartitioningMIG
	return d
}

type change = func(*resourceapi.DeviceRequestAllocationResult)

func device(name string, changes ...change) resourceapi.DeviceRequestAllocationResult {
	r := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: v1alpha1.DriverName, Pool: "node", Device: name}
	for _, c := range changes {
		c(&r)
	}
	return r
}

func amount(memory, compute string) change {
	return func(r *resourceapi.DeviceRequestAllocationResult) {
		r.ShareID = ptr.To(types.UID("share"))
		r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: resource.MustParse(memory), v1alpha1.CapacityCompute: resource.MustParse(compute),
		}
	}
}

func admin(r *resourceapi.DeviceRequestAllocationResult) { r.AdminAccess = ptr.To(true) }

func otherDriver(r *resourceapi.DeviceRequestAllocationResult) { r.Driver = "nic.example.com" }

func claim(name string, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: results},
		}},
	}
}

// mustPrepare prepares claims that are to be there before what is tested.
func (o *outside) mustPrepare(t *testing.T, list ...*resourceapi.ResourceClaim) {
	t.Helper()
	for _, c := range list {
		o.api[c.Namespace+"/"+c.Name] = c
		if _, err := o.preparer().Prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}
