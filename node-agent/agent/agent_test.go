// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// rig is an agent whose outside is in memory.
type rig struct {
	agent *Agent
	clock *testclock.FakeClock
	store *checkpoint.Store

	look    gpu.Node
	lookErr error
	gpuNode *v1alpha1.GPUNode
	node    corev1.Node
	foreign []resourceapi.ResourceSlice

	stored     []resourceslice.Slice
	generation int64
	publishes  int
	statuses   int
	maintained int
	gone       []string
	released   []string
	stuck      bool
}

func newRig(t *testing.T, gpus ...gpu.GPU) *rig {
	t.Helper()
	store, err := checkpoint.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		clock: testclock.NewFakeClock(time.Unix(1_000_000, 0)), store: store,
		look: gpu.Node{DriverVersion: "580", GPUs: gpus}, node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
	}
	r.agent = &Agent{
		Hardware: r, Cluster: r, Publisher: r, Records: store, Preparer: r, Metrics: metrics, Clock: r.clock,
		Intervals: DefaultIntervals(30 * time.Second), Log: logr.Discard(),
	}
	return r
}

func (r *rig) Look(context.Context) (gpu.Node, error) {
	if r.lookErr != nil {
		return gpu.Node{}, r.lookErr
	}
	return r.look, nil
}
func (r *rig) GPUNode(context.Context) (*v1alpha1.GPUNode, error) { return r.gpuNode.DeepCopy(), nil }
func (r *rig) CreateGPUNode(context.Context, *corev1.Node) error {
	r.gpuNode = &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node", Generation: 1, CreationTimestamp: metav1.NewTime(r.clock.Now())}}
	return nil
}
func (r *rig) UpdateStatus(_ context.Context, n *v1alpha1.GPUNode) error {
	r.statuses++
	r.gpuNode.Status = *n.Status.DeepCopy()
	return nil
}
func (r *rig) Node(context.Context) (*corev1.Node, error) { return &r.node, nil }

// Slices are what the API server makes of what was published, and those of others.
func (r *rig) Slices(context.Context) ([]resourceapi.ResourceSlice, error) {
	list := slices.Clone(r.foreign)
	for i, s := range r.stored {
		list = append(list, resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x-gpu.sluice.dev-node-x", i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: v1alpha1.DriverName, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: resourceapi.ResourcePool{Name: "node", Generation: r.generation, ResourceSliceCount: int64(len(r.stored))},
			},
		})
	}
	return list, nil
}
func (r *rig) Publish(_ context.Context, list []resourceslice.Slice) error {
	r.publishes++
	if !r.stuck {
		r.stored = list
		r.generation++
	}
	return nil
}
func (r *rig) Maintain(context.Context) error         { r.maintained++; return nil }
func (r *rig) Gone(context.Context) ([]string, error) { return r.gone, nil }
func (r *rig) Unprepare(_ context.Context, uid string) error {
	r.released = append(r.released, uid)
	r.gone = slices.DeleteFunc(r.gone, func(u string) bool { return u == uid })
	return nil
}

// passes lets the loop pass until nothing more happens, and fails where that has no end.
func (r *rig) passes(t *testing.T) {
	t.Helper()
	for range 10 {
		publishes, statuses, existed := r.publishes, r.statuses, r.gpuNode != nil
		if _, err := r.agent.pass(t.Context()); err != nil {
			t.Fatalf("pass: %v", err)
		}
		if publishes == r.publishes && statuses == r.statuses && existed {
			return
		}
	}
	t.Fatal("the loop does not come to rest")
}

func (r *rig) decide(decisions ...v1alpha1.GPUDecision) {
	if r.gpuNode == nil {
		_ = r.CreateGPUNode(context.Background(), nil)
	}
	r.gpuNode.Spec = &v1alpha1.GPUNodeSpec{GPUs: decisions}
	r.gpuNode.Generation++
}

// prepare records claims as prepared on a GPU.
func (r *rig) prepare(t *testing.T, uuid string, uids ...string) {
	t.Helper()
	claims, err := r.store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range uids {
		claims.Claims[uid] = checkpoint.Claim{UID: uid, State: checkpoint.Prepared, Results: []checkpoint.Result{{GPU: uuid, Shared: true}}}
	}
	if err := r.store.SaveClaims(claims); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) deviceNames() []string {
	names := []string{}
	for _, s := range r.stored {
		for _, d := range s.Devices {
			parts := []string{d.Name}
			for _, taint := range d.Taints {
				parts = append(parts, taint.Value)
			}
			names = append(names, strings.Join(parts, "!"))
		}
	}
	return names
}

func (r *rig) expectDevices(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), r.deviceNames()); diff != "" {
		t.Errorf("devices %s (-want +got):\n%s", when, diff)
	}
}

func (r *rig) expectCondition(t *testing.T, when, condition, status, reason string) {
	t.Helper()
	c := meta.FindStatusCondition(r.gpuNode.Status.Conditions, condition)
	if c == nil || string(c.Status) != status || c.Reason != reason {
		t.Errorf("%s %s is %+v, want %s %s", when, condition, c, status, reason)
	}
}

func h100(minor int) gpu.GPU {
	return gpu.GPU{
		UUID: fmt.Sprintf("GPU-%d", minor), Minor: minor, Product: "H100", MemoryBytes: 80 << 30, MIGMode: gpu.MIGDisabled,
		MIGModeSwitchable: true, MemorySlices: 8, ComputeSlices: 7,
	}
}

func decided(uuid, pool string, change ...func(*v1alpha1.GPUDecision)) v1alpha1.GPUDecision {
	d := v1alpha1.GPUDecision{
		UUID: uuid, Pool: pool, Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware,
		MemoryPercent: 100, ComputePercent: 100, MaxTenants: 8,
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func TestANewNode(t *testing.T) {
	r := newRig(t, h100(0))
	r.passes(t)
	r.expectDevices(t, "of a node that nobody has decided about")
	r.expectCondition(t, "at first", "Ready", "True", "NoPool")
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.expectDevices(t, "after the decision", "gpu-0")
	r.expectCondition(t, "after the decision", "Ready", "True", "Published")
	if got := r.gpuNode.Status.ObservedGeneration; got != r.gpuNode.Generation {
		t.Errorf("observed generation is %d, want %d", got, r.gpuNode.Generation)
	}
}

func TestThingsAreWrittenOnlyWhenTheyChange(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	publishes, statuses := r.publishes, r.statuses
	for range 5 {
		r.clock.Step(31 * time.Second)
		r.passes(t)
	}
	if r.publishes != publishes || r.statuses != statuses {
		t.Errorf("%d more publications and %d more statuses of the same", r.publishes-publishes, r.statuses-statuses)
	}
}

func TestAGPUInUseIsDrainedAndThenReshaped(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.prepare(t, "GPU-0", "claim")
	r.decide(decided("GPU-0", "b"))
	r.passes(t)
	r.expectDevices(t, "while a claim is prepared", "gpu-0!PoolChanged")
	r.expectCondition(t, "while a claim is prepared", "Ready", "False", "InUse")
	want := v1alpha1.PublishedForm{Pool: "a", Partitioning: "None", Sharing: "Software", Taint: "PoolChanged"}
	if diff := cmp.Diff(want, r.gpuNode.Status.GPUs[0].Published); diff != "" {
		t.Errorf("published form (-want +got):\n%s", diff)
	}
	if err := r.store.SaveClaims(checkpoint.Claims{}); err != nil {
		t.Fatal(err)
	}
	r.passes(t)
	r.expectDevices(t, "after the claim was released", "gpu-0")
	if got := r.gpuNode.Status.GPUs[0].Published.Pool; got != "b" {
		t.Errorf("it is published for pool %s", got)
	}
}

func TestTheFormInUseSurvivesARestart(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.prepare(t, "GPU-0", "claim")
	r.decide()
	r.agent.memory = memory{}
	r.stored = nil
	r.passes(t)
	r.expectDevices(t, "of a new agent", "gpu-0!NotSelected")
}

func TestAGPUNodeMadeAnewDropsNothing(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.gpuNode = nil
	r.passes(t)
	r.expectDevices(t, "while the manager has not said anything about the new GPUNode", "gpu-0")
	r.clock.Step(2 * time.Minute)
	r.passes(t)
	r.expectDevices(t, "when the manager has nothing to say about it")
}

func TestNVMLFailsAndRecovers(t *testing.T) {
	r := newRig(t, h100(0), h100(1))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.lookErr = fmt.Errorf("looking: %w", nvml.ErrFailed)
	r.passes(t)
	r.expectDevices(t, "right after NVML failed", "gpu-0")
	r.expectCondition(t, "right after NVML failed", "DriverAvailable", "False", "NVMLFailed")
	r.decide(decided("GPU-0", "a"), decided("GPU-1", "a"))
	r.clock.Step(31 * time.Second)
	r.passes(t)
	r.expectDevices(t, "while NVML fails", "gpu-0!NVMLFailed")
	r.lookErr = nil
	r.passes(t)
	r.expectDevices(t, "after NVML has recovered", "gpu-0", "gpu-1")
	r.expectCondition(t, "after NVML has recovered", "DriverAvailable", "True", "NVMLAvailable")
}

func TestNVMLMissingFromTheStart(t *testing.T) {
	r := newRig(t, h100(0))
	r.lookErr = fmt.Errorf("looking: %w: tried /usr/lib64", nvml.ErrNotFound)
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.expectDevices(t, "without NVML")
	r.expectCondition(t, "without NVML", "DriverAvailable", "False", "NVMLNotFound")
	if c := meta.FindStatusCondition(r.gpuNode.Status.Conditions, "DriverAvailable"); !strings.Contains(c.Message, "tried /usr/lib64") {
		t.Errorf("the message does not say what was tried: %s", c.Message)
	}
	r.lookErr = nil
	r.passes(t)
	r.expectDevices(t, "with NVML", "gpu-0")
}

func TestAForeignDriver(t *testing.T) {
	r := newRig(t, h100(0), h100(1))
	r.decide(decided("GPU-0", "a"), decided("GPU-1", "a"))
	r.passes(t)
	r.prepare(t, "GPU-1", "claim")
	r.node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
	r.passes(t)
	r.expectDevices(t, "beside a device plugin", "gpu-1!ForeignDriver")
	r.expectCondition(t, "beside a device plugin", "ForeignDriver", "True", "ForeignDriver")
	r.node.Status.Allocatable = nil
	r.passes(t)
	r.expectDevices(t, "after the device plugin has gone", "gpu-1", "gpu-0")
	r.expectCondition(t, "after the device plugin has gone", "ForeignDriver", "False", "NoForeignDriver")
	r.foreign = []resourceapi.ResourceSlice{{Spec: resourceapi.ResourceSliceSpec{Driver: "gpu.nvidia.com"}}}
	r.passes(t)
	r.expectCondition(t, "beside NVIDIA's driver", "ForeignDriver", "True", "ForeignDriver")
}

func TestAGPUThatVanishesWhileInUse(t *testing.T) {
	r := newRig(t, h100(0), h100(1))
	r.decide(decided("GPU-0", "a"), decided("GPU-1", "a"))
	r.passes(t)
	r.prepare(t, "GPU-0", "claim")
	r.look.GPUs = r.look.GPUs[1:]
	r.passes(t)
	r.expectDevices(t, "after one has vanished", "gpu-0!GPUMissing", "gpu-1")
	r.expectCondition(t, "after one has vanished", "Ready", "False", "GPUMissing")
}

func TestTheOrderChangesSeldom(t *testing.T) {
	r := newRig(t, h100(0), h100(1), h100(2))
	r.decide(decided("GPU-0", "a"), decided("GPU-1", "a"), decided("GPU-2", "a"))
	r.passes(t)
	r.clock.Step(time.Minute)
	r.prepare(t, "GPU-2", "first")
	r.passes(t)
	r.expectDevices(t, "after a GPU was started", "gpu-2", "gpu-0", "gpu-1")
	r.prepare(t, "GPU-1", "second")
	r.passes(t)
	r.expectDevices(t, "right after another GPU was started", "gpu-2", "gpu-0", "gpu-1")
	r.clock.Step(31 * time.Second)
	r.passes(t)
	r.expectDevices(t, "a while after another GPU was started", "gpu-2", "gpu-1", "gpu-0")
	publishes := r.publishes
	r.prepare(t, "GPU-1", "third", "fourth")
	r.clock.Step(31 * time.Second)
	r.passes(t)
	if r.publishes != publishes {
		t.Error("more tenants of started GPUs rewrote the slices")
	}
}

func TestSlicesAreAskedForAgain(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.stuck = true
	for range 3 {
		if _, err := r.agent.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r.publishes != 1 {
		t.Errorf("asked %d times at once", r.publishes)
	}
	r.expectCondition(t, "while the slices are not written", "Ready", "False", "Publishing")
	r.clock.Step(6 * time.Second)
	r.stuck = false
	r.passes(t)
	r.expectDevices(t, "when the API server is there again", "gpu-0")
}

func TestKubeletsRestartBringsTheSlicesBackAtOnce(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.stored = nil // kubelet deletes them when it starts
	(&Observer{Agent: r.agent, Metrics: r.agent.Metrics}).Registered()
	r.passes(t)
	r.expectDevices(t, "after kubelet has registered the driver", "gpu-0")
}

func TestPublishErrorsAreReported(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.stuck = true
	(&Observer{Agent: r.agent, Metrics: r.agent.Metrics}).PublishFailed(errors.New("field is not kept"))
	if _, err := r.agent.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.gpuNode.Status.GPUs[0].Message; !strings.Contains(got, "field is not kept") {
		t.Errorf("the message is %q", got)
	}
}

func TestClaimsThatAreGoneAreReleasedAtTheSecondLook(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide()
	r.gone = []string{"uid"}
	r.passes(t)
	r.clock.Step(30 * time.Second)
	r.passes(t)
	if len(r.released) > 0 {
		t.Error("a claim was released at once")
	}
	r.clock.Step(31 * time.Second)
	r.passes(t)
	if diff := cmp.Diff([]string{"uid"}, r.released); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
}

func TestOrphansAreCleanedUp(t *testing.T) {
	g := h100(0)
	g.MIGMode = gpu.MIGEnabled
	g.Profiles = []gpu.Profile{{Name: "1g.10gb", MemorySlices: 1, ComputeSlices: 1, Starts: []int{0}, Max: 1, MemoryBytes: 1 << 30}}
	r := newRig(t, g)
	r.decide(decided("GPU-0", "m", func(d *v1alpha1.GPUDecision) {
		d.Partitioning, d.Sharing = v1alpha1.PartitioningMIG, v1alpha1.SharingExclusive
	}))
	r.passes(t)
	if r.maintained > 0 {
		t.Error("cleaned up where nothing was left")
	}
	r.look.GPUs[0].Instances = []gpu.Instance{{Profile: "1g.10gb", GIID: 3}}
	r.passes(t)
	if r.maintained == 0 {
		t.Error("an instance that no claim accounts for was left")
	}
}
