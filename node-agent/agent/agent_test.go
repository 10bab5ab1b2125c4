// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

var errInjected = errors.New("injected")

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

func TestAChangeOfTheComputePolicyReachesRunningShares(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	claims, err := r.store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	claims.Claims["uid"] = checkpoint.Claim{
		UID: "uid", State: checkpoint.Prepared, Results: []checkpoint.Result{{GPU: "GPU-0", Shared: true, Enforced: true}},
	}
	if err := r.store.SaveClaims(claims); err != nil {
		t.Fatal(err)
	}
	r.passes(t)
	if r.maintained > 0 || r.refreshed > 0 {
		t.Error("shares were told of a policy that they go by")
	}
	r.decide(decided("GPU-0", "a", func(d *v1alpha1.GPUDecision) { d.Compute = v1alpha1.ComputeCap }))
	r.passes(t)
	if r.maintained == 0 || r.refreshed == 0 {
		t.Errorf("shares were told %d times and the arbiter %d times", r.maintained, r.refreshed)
	}
	r.expectDevices(t, "after the change", "gpu-0")
}

func TestTheAPIServerIsAwayAndComesBack(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.watched, r.away = r.gpuNode.DeepCopy(), errInjected
	if _, err := r.agent.pass(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("a pass without the API server: %v", err)
	}
	r.expectDevices(t, "while the API server is away", "gpu-0")
	// It is back, but the watch is not yet.
	r.away = nil
	r.decide()
	next, err := r.agent.pass(t.Context())
	if err != nil || next > r.agent.Intervals.Republish {
		t.Errorf("the next pass is due in %v, %v", next, err)
	}
	r.expectDevices(t, "when the API server is back")
}

func TestANodeThatIsGoneGetsNoGPUNode(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "a"))
	r.passes(t)
	r.gpuNode, r.away = nil, apierrors.NewNotFound(corev1.Resource("nodes"), "node")
	if _, err := r.agent.pass(t.Context()); err == nil || r.gpuNode != nil {
		t.Errorf("pass: %v, GPUNode %v", err, r.gpuNode)
	}
	r.away, r.node.UID = nil, "another"
	if err := r.agent.Run(t.Context()); !errors.Is(err, ErrNodeReplaced) {
		t.Errorf("after the Node was made anew: %v", err)
	}
}
