// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/cgroups"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/divide"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
	"github.com/sluice-gpu/sluice/node-agent/violations"
)

// rig is an agent whose outside is in memory.
type rig struct {
	agent *Agent
	clock *testclock.FakeClock
	store *checkpoint.Store

	look    gpu.Node
	lookErr error
	gpuNode *v1alpha1.GPUNode
	// watched is what a watch that has broken off goes on showing.
	watched *v1alpha1.GPUNode
	away    error
	node    corev1.Node
	foreign []resourceapi.ResourceSlice

	stored       []resourceslice.Slice
	generation   int64
	publishes    int
	statuses     int
	maintained   int
	divided      divide.Result
	divides      int
	processes    []holders.Process
	holdersErr   error
	mpsProgram   error
	timeSlices   []string
	timeSliceErr error
	refreshed    int
	gone         []string
	ward         ward
	released     []string
	stuck        bool
	probe        memlimits.Probe
	fallbacks    []cgroups.Fallback
}

// Report says that nothing is shared by MPS.
func (*rig) Report() watch.Report { return watch.Report{} }

func (r *rig) Program() error { return r.mpsProgram }

// lawful is a node whose shares are all kept to.
type lawful struct{}

func (lawful) Report() violations.Report { return violations.Report{Known: true} }

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
		Hardware: r, Cluster: r, Publisher: r, Records: store, Preparer: r, Divider: r, Holders: r, TimeSlicer: r, Library: r, Arbiter: r, MPS: r, MemoryLimits: r,
		Violations: lawful{},
		Health:     &r.ward, HealthReports: &r.ward, Teller: &r.ward, Metrics: metrics, Clock: r.clock,
		Intervals: DefaultIntervals(30 * time.Second), Log: logr.Discard(),
	}
	return r
}

// Probe says what was tried; Fallbacks are those that are set.
func (r *rig) Probe(context.Context, checkpoint.Facts) memlimits.Probe { return r.probe }
func (r *rig) Fallbacks(checkpoint.Claims, checkpoint.Published, map[string]v1alpha1.GPUMemoryLimits) ([]cgroups.Fallback, error) {
	return r.fallbacks, nil
}

func (r *rig) Refresh() { r.refreshed++ }

func (r *rig) Look(context.Context) (gpu.Node, error) {
	if r.lookErr != nil {
		return gpu.Node{}, r.lookErr
	}
	return r.look, nil
}
func (r *rig) GPUNode(_ context.Context, fresh bool) (*v1alpha1.GPUNode, error) {
	if !fresh && r.watched != nil {
		return r.watched.DeepCopy(), nil
	}
	return r.gpuNode.DeepCopy(), nil
}
func (r *rig) CreateGPUNode(context.Context, *corev1.Node) error {
	r.gpuNode = &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node", Generation: 1, CreationTimestamp: metav1.NewTime(r.clock.Now())}}
	return nil
}
func (r *rig) UpdateStatus(_ context.Context, n *v1alpha1.GPUNode) error {
	r.statuses++
	r.gpuNode.Status = *n.Status.DeepCopy()
	return nil
}
func (r *rig) Node(context.Context) (*corev1.Node, error) { return r.node.DeepCopy(), r.away }

// Slices are what the API server makes of what was published, and those of others.
func (r *rig) Slices(context.Context, bool) ([]resourceapi.ResourceSlice, error) {
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
func (r *rig) Divide(context.Context, gpu.Node) (divide.Result, error) {
	r.divides++
	return r.divided, nil
}
func (r *rig) On(context.Context, string, checkpoint.Claims) ([]holders.Process, error) {
	return r.processes, r.holdersErr
}
func (r *rig) SetTimeSlice(_ context.Context, uuid string, slice v1alpha1.TimeSlice) error {
	r.timeSlices = append(r.timeSlices, uuid+" "+string(slice))
	return r.timeSliceErr
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

func (r *rig) Status() (string, error) { return "v1", nil }
