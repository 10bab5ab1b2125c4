// SPDX-License-Identifier: Apache-2.0

package poolstatus_test

import (
	gocmp "cmp"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/internal/poolstatus"
)

const product = "NVIDIA H100 80GB HBM3"

func makePool(name string, options ...func(*v1alpha1.GPUPool)) v1alpha1.GPUPool {
	p := v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 7}}
	for _, option := range options {
		option(&p)
	}
	return p
}

func deleting(p *v1alpha1.GPUPool) {
	p.DeletionTimestamp = ptr.To(metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
}

func byDefault(p *v1alpha1.GPUPool) { p.Spec.Default = ptr.To(true) }

func onlyRoom(room string) func(*v1alpha1.GPUPool) {
	return func(p *v1alpha1.GPUPool) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"room": room}}
	}
}

func unreadable(p *v1alpha1.GPUPool) {
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "room", Operator: "in", Values: []string{"here"}}}}
}

func onlyA100(p *v1alpha1.GPUPool) {
	p.Spec.GPUSelector = v1alpha1.GPUSelector{Products: []string{"NVIDIA A100*"}}
}

// gpuCase is one GPU of 80Gi: what is decided for it and what its agent says.
type gpuCase struct {
	pool    string // "" for no decision
	taint   v1alpha1.TaintReason
	percent int32
	mig     bool
	hidden  bool   // not published
	reason  string // the agent's; "" is Published, or nothing for a hidden GPU
}

func makeNode(name string, gpus ...gpuCase) assign.Node {
	n := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3},
		Spec:       &v1alpha1.GPUNodeSpec{},
		Status: v1alpha1.GPUNodeStatus{
			ObservedGeneration: 3,
			Profiles:           []v1alpha1.MIGProfile{{Product: product, Name: "1g.10gb", Memory: ptr.To(resource.MustParse("10Gi"))}},
		},
	}
	for i, g := range gpus {
		uuid := fmt.Sprintf("GPU-%s-%d", name, i)
		reported := v1alpha1.GPUStatus{
			UUID: uuid, Minor: ptr.To(int32(i)), Product: product, Memory: ptr.To(resource.MustParse("80Gi")), Reason: g.reason,
		}
		if g.pool != "" {
			d := v1alpha1.GPUDecision{
				UUID: uuid, Pool: g.pool, Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware,
				MemoryPercent: max(g.percent, 100), ComputePercent: 100, Taint: g.taint,
			}
			if g.mig {
				d.Partitioning, d.Sharing = v1alpha1.PartitioningMIG, v1alpha1.SharingExclusive
			}
			n.Spec.GPUs = append(n.Spec.GPUs, d)
			if !g.hidden {
				reported.Reason = gocmp.Or(g.reason, v1alpha1.ReasonPublished)
				reported.Published = v1alpha1.PublishedForm{Pool: d.Pool, Partitioning: d.Partitioning, Sharing: d.Sharing, Taint: d.Taint}
			}
		}
		n.Status.GPUs = append(n.Status.GPUs, reported)
	}
	return assign.Node{GPUNode: n, Labels: map[string]string{"room": "here"}}
}

// allocated adds an allocation to a node; memory "" is a device given whole.
func allocated(n assign.Node, device, memory string, pods ...string) assign.Node {
	a := assign.Allocation{Claim: types.NamespacedName{Namespace: "team", Name: "claim"}, Pods: pods, Device: device}
	if memory != "" {
		a.Memory = ptr.To(resource.MustParse(memory))
	}
	n.Allocations = append(n.Allocations, a)
	return n
}

// compute gives the pool the classes that it needs.
func compute(in poolstatus.Input, existing ...resourceapi.DeviceClass) poolstatus.Result {
	if len(in.Pools) == 0 {
		in.Pools = []v1alpha1.GPUPool{*in.Pool}
	}
	nodes := make([]v1alpha1.GPUNode, 0, len(in.Nodes))
	for _, n := range in.Nodes {
		nodes = append(nodes, *n.GPUNode)
	}
	in.Needs = classes.Needs(in.Pools, nodes, true)
	for _, need := range in.Needs {
		in.Classes = append(in.Classes, *classes.Render(need))
	}
	in.Classes = append(in.Classes, existing...)
	return poolstatus.Compute(in)
}

func TestCounts(t *testing.T) {
	pool := makePool("p")
	nodes := []assign.Node{
		allocated(allocated(makeNode("a", gpuCase{pool: "p", percent: 150}, gpuCase{pool: "p", hidden: true}, gpuCase{pool: "other"}),
			"gpu-0", "10Gi", "one"), "gpu-0", "512Mi", "two"),
		allocated(allocated(makeNode("b", gpuCase{pool: "p", mig: true}, gpuCase{pool: "p"}),
			"gpu-0-mig-1g10gb-2", "", "three"), "gpu-1", "", "four"),
		makeNode("c", gpuCase{}),
	}
	got := compute(poolstatus.Input{Pool: &pool, Nodes: nodes}).Status
	got.Conditions = nil
	want := v1alpha1.GPUPoolStatus{
		ObservedGeneration: 7,
		SharingMode:        v1alpha1.SharingSoftware,
		Summary:            "3/4 GPUs · 100.5/280 GiB",
		Nodes:              ptr.To[int32](2),
		GPUs:               v1alpha1.PoolGPUCount{Held: ptr.To[int32](4), Published: ptr.To[int32](3), Allocated: ptr.To[int32](3)},
		Memory: v1alpha1.PoolMemory{
			Physical: ptr.To(resource.MustParse("320Gi")), Published: ptr.To(resource.MustParse("280Gi")),
			Allocated: ptr.To(resource.MustParse("102912Mi")),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestReady(t *testing.T) {
	tests := []struct {
		name    string
		pool    v1alpha1.GPUPool
		others  []v1alpha1.GPUPool
		nodes   []assign.Node
		want    string // status and reason
		message string
	}{
		{
			name: "without any node agent no node matches", pool: makePool("p"),
			want: "False NoMatchingNodes", message: "no node runs a node agent yet",
		},
		{
			name: "a label that nodes have with another value is named", pool: makePool("p", onlyRoom("there")),
			nodes: []assign.Node{makeNode("a", gpuCase{})},
			want:  "False NoMatchingNodes", message: "nodeSelector matches none of 1 node with GPUs: label room is here there",
		},
		{
			name: "a label that no node has is named",
			pool: makePool("p", func(p *v1alpha1.GPUPool) {
				p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "rack", Operator: metav1.LabelSelectorOpExists}}}
			}),
			nodes: []assign.Node{makeNode("a", gpuCase{}), makeNode("b", gpuCase{})},
			want:  "False NoMatchingNodes", message: "nodeSelector matches none of 2 nodes with GPUs: none has the label rack",
		},
		{
			name: "products that do not match are listed", pool: makePool("p", onlyA100),
			nodes: []assign.Node{makeNode("a", gpuCase{}, gpuCase{})},
			want:  "False NoMatchingGPUs", message: "1 node matches, but gpuSelector matches none of their GPUs: 2 × NVIDIA H100 80GB HBM3",
		},
		{
			name: "a node without GPUs offers none", pool: makePool("p"), nodes: []assign.Node{makeNode("a")},
			want: "False NoMatchingGPUs", message: "1 node matches, but no GPU is reported there",
		},
		{
			name: "a pool whose GPUs others hold says who", pool: makePool("p"), nodes: []assign.Node{makeNode("a", gpuCase{pool: "old"})},
			want:    "False NoMatchingGPUs",
			message: "1 node matches, but other pools hold all 1 GPU that this pool selects: pool old holds gpu-0 of node a",
		},
		{
			name: "GPUs that are not decided yet are on their way", pool: makePool("p"), nodes: []assign.Node{makeNode("a", gpuCase{})},
			want: "False GPUsNotPublished", message: "1 GPU selected and about to be given to the pool",
		},
		{
			name: "GPUs that are not published are counted by reason", pool: makePool("p"),
			nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"},
				gpuCase{pool: "p", hidden: true, reason: "MIGModeOn"}, gpuCase{pool: "p", hidden: true}, gpuCase{pool: "p", hidden: true, reason: "MIGModeOn"})},
			want:    "False GPUsNotPublished",
			message: "3 GPUs of 4 not published: 2 MIGModeOn, such as gpu-1 of node a; 1 Publishing, such as gpu-2 of node a",
		},
		{
			name: "a GPU whose slices are being rewritten stays ready", pool: makePool("p"),
			nodes:   []assign.Node{makeNode("a", gpuCase{pool: "p"}, gpuCase{pool: "p", reason: "Publishing"})},
			want:    "True AllPublished",
			message: "2 GPUs on 1 node published",
		},
		{
			name: "GPUs that are published as decided, but in trouble, are not ready", pool: makePool("p"),
			nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"},
				gpuCase{pool: "p", reason: "GPUMissing"}, gpuCase{pool: "p", reason: "NVMLNotFound"}, gpuCase{pool: "p", reason: "InUse"})},
			want:    "False GPUsNotPublished",
			message: "3 GPUs of 4 not published: 1 GPUMissing, such as gpu-1 of node a; 1 InUse, such as gpu-3 of node a; 1 NVMLNotFound, such as gpu-2 of node a",
		},
		{
			name:  "a node selector that cannot be read is said to be so, whatever the pool holds",
			pool:  makePool("p", unreadable),
			nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"})},
			want:  "False InvalidNodeSelector",
			message: "the pool keeps the 1 GPU that it holds and gets no others until nodeSelector can be read: use operator In or NotIn with values, " +
				`Exists or DoesNotExist without, and keys and values that a label can have; reading the nodeSelector: "in" is not a valid label selector operator`,
		},
		{
			name: "GPUs that change their form are not ready", pool: makePool("p"),
			nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"}, gpuCase{pool: "p", taint: v1alpha1.TaintPoolChanged})},
			want:  "False GPUsNotPublished", message: "1 GPU of 2 in change to the form that the pool wants; condition RollingOut says who is waited for",
		},
		{
			name: "GPUs that leave the pool do not count", pool: makePool("p"),
			nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"}, gpuCase{pool: "p", taint: v1alpha1.TaintNotSelected})},
			want:  "True AllPublished", message: "1 GPU on 1 node published",
		},
		{
			name: "all published", pool: makePool("p"),
			nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"}, gpuCase{pool: "p"}), makeNode("b", gpuCase{pool: "p"})},
			want:  "True AllPublished", message: "3 GPUs on 2 nodes published",
		},
		{
			name: "two default pools are warned of", pool: makePool("p", byDefault), others: []v1alpha1.GPUPool{makePool("a", byDefault)},
			nodes:   []assign.Node{makeNode("a", gpuCase{pool: "p"})},
			want:    "True AllPublished",
			message: "1 GPU on 1 node published; pools a, p all say default: true, so pods that name no pool are refused",
		},
		{
			name: "a pool being deleted is not ready", pool: makePool("p", deleting), nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"})},
			want: "False Deleting", message: "the pool is being deleted; condition Draining says who still holds its GPUs",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := compute(poolstatus.Input{Pool: &tc.pool, Pools: append(tc.others, tc.pool), Nodes: tc.nodes})
			checkCondition(t, got, v1alpha1.PoolReady, tc.want, tc.message)
		})
	}
}

func checkCondition(t *testing.T, result poolstatus.Result, kind, want, message string) {
	t.Helper()
	c := meta.FindStatusCondition(result.Status.Conditions, kind)
	if c == nil {
		t.Fatalf("condition %s is not set", kind)
	}
	if got := string(c.Status) + " " + c.Reason; got != want {
		t.Errorf("%s: want %s, got %s (%s)", kind, want, got, c.Message)
	}
	if diff := cmp.Diff(message, c.Message); message != "" && diff != "" {
		t.Errorf("%s message (-want +got):\n%s", kind, diff)
	}
	if c.ObservedGeneration != 7 {
		t.Errorf("%s: want observedGeneration 7, got %d", kind, c.ObservedGeneration)
	}
}

// TestMessagesAreBounded tries what makes a message long: the status must be writable, and an event must carry it.
func TestMessagesAreBounded(t *testing.T) {
	const longKey = "example.com/ä"
	long := strings.Repeat("ä", 5000)
	labels := map[string]string{}
	for i := range 5000 {
		labels[fmt.Sprintf("%s-%d", longKey, i)] = long
	}
	tests := []struct {
		name     string
		selector *metav1.LabelSelector
	}{
		{name: "a selector of many labels", selector: &metav1.LabelSelector{MatchLabels: labels}},
		{name: "a selector whose error quotes a long value", selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{long}},
		}}},
		{name: "a selector with a long operator", selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "a", Operator: metav1.LabelSelectorOperator(long)},
		}}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			pool := makePool("p", func(p *v1alpha1.GPUPool) { p.Spec.NodeSelector = tc.selector })
			node := makeNode("a", gpuCase{pool: long}, gpuCase{pool: "p", hidden: true, reason: long}, gpuCase{pool: "p", taint: v1alpha1.TaintNotSelected})
			node.Labels = labels
			got := compute(poolstatus.Input{Pool: &pool, Nodes: []assign.Node{allocated(node, "gpu-2", "1Gi", long)}})
			for _, c := range got.Status.Conditions {
				if len(c.Message) > 1024 || !utf8.ValidString(c.Message) {
					t.Errorf("%s: a message of %d bytes, valid UTF-8: %v", c.Type, len(c.Message), utf8.ValidString(c.Message))
				}
			}
		})
	}
}

func TestReadyWithoutItsClass(t *testing.T) {
	pool := makePool("p")
	in := poolstatus.Input{
		Pool: &pool, Nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"})},
		Needs: []classes.Need{{Name: "p.sluice.dev", Pools: []string{"p"}}},
	}
	checkCondition(t, poolstatus.Compute(in), v1alpha1.PoolReady, "False DeviceClassMissing", "no DeviceClass of Sluice's making: p.sluice.dev")
}

func TestContested(t *testing.T) {
	pool := makePool("p")
	node := makeNode("a", gpuCase{pool: "p"}, gpuCase{pool: "old"}, gpuCase{pool: "old"}, gpuCase{pool: "older"})
	got := compute(poolstatus.Input{Pool: &pool, Nodes: []assign.Node{node}})
	checkCondition(t, got, v1alpha1.PoolContested, "True HeldByOtherPool",
		"other pools hold 3 GPUs that this pool selects: pool old holds gpu-1 of node a, pool older holds gpu-3 of node a")

	got = compute(poolstatus.Input{Pool: &pool, Nodes: []assign.Node{makeNode("a", gpuCase{pool: "p"})}})
	checkCondition(t, got, v1alpha1.PoolContested, "False NotContested", "")
}

func TestResourceNameConflict(t *testing.T) {
	pool := makePool("p", func(p *v1alpha1.GPUPool) { p.Spec.Sharing.Mode = v1alpha1.SharingExclusive })
	intruder := resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"},
		Spec:       resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To("nvidia.com/gpu")},
	}
	got := compute(poolstatus.Input{Pool: &pool}, intruder)
	checkCondition(t, got, v1alpha1.PoolResourceNameConflict, "True ForeignClass",
		"DeviceClass gpu.example.com, not made by Sluice, carries extendedResourceName nvidia.com/gpu: pods that ask for it get that class's devices, "+
			"not this pool's. Remove the name there, or run the manager with --extended-resources=false")
	checkCondition(t, compute(poolstatus.Input{Pool: &pool}), v1alpha1.PoolResourceNameConflict, "False NoConflict", "")
}

func TestDraining(t *testing.T) {
	pool := makePool("p")
	leaving := makeNode("a", gpuCase{pool: "p", taint: v1alpha1.TaintPoolChanged}, gpuCase{pool: "p", taint: v1alpha1.TaintPoolChanged})
	behind := makeNode("a", gpuCase{pool: "p", taint: v1alpha1.TaintPoolChanged})
	behind.GPUNode.Status.ObservedGeneration = 2
	tests := []struct {
		name    string
		node    assign.Node
		want    string
		message string
	}{
		{
			name: "nothing leaves", node: makeNode("a", gpuCase{pool: "p"}),
			want: "False NothingToDrain", message: "no GPU has to leave the pool or change its form",
		},
		{
			name:    "tenants are named once each, five at most, then counted",
			node:    allocated(allocated(allocated(leaving, "gpu-0", "1Gi", "b", "a", "c", "d", "e"), "gpu-1", "1Gi", "a", "f", "g"), "gpu-1", "1Gi"),
			want:    "True TenantsRemain",
			message: "2 GPUs to be freed, held by claim team/claim, team/a, team/b, team/c, team/d and 3 more",
		},
		{
			name: "an agent that is behind is named", node: behind,
			want:    "True Settling",
			message: "nobody holds 1 GPU to be freed; the node agent must still take them from the scheduler on a",
		},
		{
			name: "free GPUs settle", node: leaving,
			want: "True Settling", message: "nobody holds 2 GPUs to be freed; they leave once no allocation can be on its way",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := compute(poolstatus.Input{Pool: &pool, Nodes: []assign.Node{tc.node}})
			checkCondition(t, got, v1alpha1.PoolDraining, tc.want, tc.message)
		})
	}
}

// forgotten takes the decisions away; what is published stays.
func forgotten(n assign.Node) assign.Node {
	n.GPUNode.Spec.GPUs = nil
	return n
}

// undecided makes the node one for which the manager has not decided anything.
func undecided(n assign.Node) assign.Node {
	n.GPUNode.Spec = nil
	return n
}

func givenTo(pool string, n assign.Node) assign.Node {
	n.GPUNode.Spec.GPUs[0].Pool = pool
	return n
}

func TestReleased(t *testing.T) {
	alive, gone := makePool("p"), makePool("p", deleting)
	class := *classes.Render(classes.Need{Name: "p.sluice.dev"})
	foreign := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "p.sluice.dev"}}
	holding := []assign.Node{makeNode("a", gpuCase{pool: "p", taint: v1alpha1.TaintPoolDeleted})}
	tests := []struct {
		name string
		in   poolstatus.Input
		want bool
	}{
		{name: "a pool that lives stays", in: poolstatus.Input{Pool: &alive}},
		{name: "a deleted pool that holds a GPU stays", in: poolstatus.Input{Pool: &gone, Nodes: holding}},
		{name: "a deleted pool whose class is there stays", in: poolstatus.Input{Pool: &gone, Classes: []resourceapi.DeviceClass{class}}},
		{name: "a deleted pool goes although somebody else's class has its name", in: poolstatus.Input{Pool: &gone, Classes: []resourceapi.DeviceClass{foreign}}, want: true},
		{name: "a deleted pool stays while a GPU without a decision is published and used as its own", in: poolstatus.Input{Pool: &gone, Nodes: []assign.Node{
			allocated(forgotten(makeNode("a", gpuCase{pool: "p"})), "gpu-0", "1Gi"),
		}}},
		{name: "a deleted pool stays while a GPU is used as its own although another pool has it", in: poolstatus.Input{Pool: &gone, Nodes: []assign.Node{
			allocated(givenTo("q", makeNode("a", gpuCase{pool: "p"})), "gpu-0", "1Gi"),
		}}},
		{name: "a deleted pool stays while the manager has decided nothing where its GPUs are published", in: poolstatus.Input{Pool: &gone, Nodes: []assign.Node{
			undecided(makeNode("a", gpuCase{pool: "p"})),
		}}},
		{name: "a deleted pool goes although its last GPU is not withdrawn yet", in: poolstatus.Input{Pool: &gone, Nodes: []assign.Node{
			forgotten(makeNode("a", gpuCase{pool: "p"})),
		}}, want: true},
		{name: "a deleted pool that holds nothing goes", in: poolstatus.Input{Pool: &gone, Nodes: []assign.Node{makeNode("a", gpuCase{pool: "q"})}}, want: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := poolstatus.Compute(tc.in).Released; got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}

func TestOverGuaranteed(t *testing.T) {
	pool := makePool("p")
	checkCondition(t, poolstatus.Compute(poolstatus.Input{Pool: &pool}), v1alpha1.PoolOverGuaranteed, "False GuaranteesCovered", "")
	got := poolstatus.Compute(poolstatus.Input{Pool: &pool, OverGuaranteed: "gpus: quotas guarantee 4 of p, which has 2"})
	checkCondition(t, got, v1alpha1.PoolOverGuaranteed, "True GuaranteesAboveCapacity", "gpus: quotas guarantee 4 of p, which has 2")
}
