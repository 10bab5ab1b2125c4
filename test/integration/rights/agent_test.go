// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// policyTimeout is the longest that the API server takes to enforce a new policy.
const policyTimeout = 30 * time.Second

// agentOf is a client with the token of the node agent; of a node where one is given, of none otherwise.
func agentOf(t *testing.T, node *corev1.Node) client.Client {
	t.Helper()
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	if node != nil {
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "sluice-node-agent"}}
	if err := shared.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("asking for the agent's token: %v", err)
	}
	config := rest.AnonymousClientConfig(shared.Config)
	config.BearerToken = request.Status.Token
	config.QPS = -1
	scheme, err := stack.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("making the agent's client: %v", err)
	}
	return c
}

func makeNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := shared.Client.Create(t.Context(), node); err != nil {
		t.Fatalf("creating node %s: %v", name, err)
	}
	return node
}

func gpuNode(name string) *v1alpha1.GPUNode {
	return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func decided(name string) *v1alpha1.GPUNode {
	n := gpuNode(name)
	n.Spec = &v1alpha1.GPUNodeSpec{GPUs: []v1alpha1.GPUDecision{{
		UUID: "GPU-1", Pool: "p", Partitioning: v1alpha1.PartitioningNone, Sharing: v1alpha1.SharingSoftware, MemoryPercent: 100, ComputePercent: 100,
	}}}
	return n
}

func slice(driver, node string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: ptr.To(node), Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	}
}

func event(kind, host string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "try-"},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: metav1.NamespaceDefault, Name: "x"},
		Reason:         "Try", Message: "try", Type: corev1.EventTypeNormal, Source: corev1.EventSource{Component: "test", Host: host},
	}
}

// eventOfGPUNode is an event of a GPUNode of the API group, in the name of node a.
func eventOfGPUNode(group, name string) *corev1.Event {
	e := event("GPUNode", "a")
	e.InvolvedObject = corev1.ObjectReference{APIVersion: group + "/v1alpha1", Kind: "GPUNode", Name: name}
	return e
}

// TestAgent tries what an agent may do as the agent of node a.
func TestAgent(t *testing.T) {
	for _, args := range [][]string{{"apply", "--server-side", "-k", stack.Path("config", "rbac")}} {
		if _, err := shared.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	a := makeNode(t, "a")
	agent, unbound := agentOf(t, a), agentOf(t, nil)
	if err := shared.Client.Create(t.Context(), gpuNode("b")); err != nil {
		t.Fatal(err)
	}
	sliceOfB := slice(v1alpha1.DriverName, "b")
	if err := shared.Client.Create(t.Context(), sliceOfB); err != nil {
		t.Fatal(err)
	}
	waitForPolicy(t, agent)

	foreignPool := slice(v1alpha1.DriverName, "a")
	foreignPool.Spec.Pool.Name = "b"
	create := func(c client.Client, object client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return c.Create(ctx, object, client.DryRunAll) }
	}
	tests := []struct {
		name   string
		do     func(context.Context) error
		refuse string // what the refusal says; "" where it is allowed
	}{
		{name: "its own GPUNode", do: create(agent, gpuNode("a"))},
		{name: "another node's GPUNode", do: create(agent, gpuNode("c")), refuse: "writes its own GPUNode only"},
		{name: "its own GPUNode with a decision in it", do: create(agent, decided("a")), refuse: "GPUNode.spec is the manager's"},
		{name: "a slice of its node", do: create(agent, slice(v1alpha1.DriverName, "a"))},
		{name: "a slice of another node", do: create(agent, slice(v1alpha1.DriverName, "b")), refuse: "for its own node only"},
		{name: "a slice of its node in another node's pool", do: create(agent, foreignPool), refuse: "of the pool a only"},
		{name: "a slice of another driver", do: create(agent, slice("gpu.example.com", "a")), refuse: "for its own node only"},
		{name: "an event of a pod", do: create(agent, event("Pod", "a"))},
		{name: "an event of a pod in another node's name", do: create(agent, event("Pod", "b")), refuse: "names its node as their source"},
		{name: "an event of something else", do: create(agent, event("Secret", "a")), refuse: "writes events of pods and of its own GPUNode only"},
		{name: "an event of its own GPUNode", do: create(agent, eventOfGPUNode("sluice.dev", "a"))},
		{name: "an event of another node's GPUNode", do: create(agent, eventOfGPUNode("sluice.dev", "b")), refuse: "of its own GPUNode only"},
		{name: "an event of a GPUNode of another API", do: create(agent, eventOfGPUNode("example.com", "a")), refuse: "of its own GPUNode only"},
		{
			name: "an event of its own GPUNode in another node's name",
			do: func(ctx context.Context) error {
				e := eventOfGPUNode("sluice.dev", "a")
				e.Source.Host = "b"
				return agent.Create(ctx, e, client.DryRunAll)
			},
			refuse: "names its node as their source",
		},
		{name: "an event without a node of its own", do: create(unbound, eventOfGPUNode("sluice.dev", "")), refuse: "must be bound"},
		{
			name:   "removing another node's slice",
			do:     func(ctx context.Context) error { return agent.Delete(ctx, sliceOfB, client.DryRunAll) },
			refuse: "for its own node only",
		},
		{
			name: "taking over another node's slice",
			do: func(ctx context.Context) error {
				taken := sliceOfB.DeepCopy()
				taken.Spec.Pool.Generation++
				return agent.Update(ctx, taken, client.DryRunAll)
			},
			refuse: "for its own node only",
		},
		{
			name:   "removing a GPUNode",
			do:     func(ctx context.Context) error { return agent.Delete(ctx, gpuNode("b"), client.DryRunAll) },
			refuse: "cannot delete resource",
		},
		{
			name: "another node's status",
			do: func(ctx context.Context) error {
				n := gpuNode("b")
				if err := agent.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
					return err
				}
				n.Status.ObservedGeneration = 1
				return agent.Status().Update(ctx, n, client.DryRunAll)
			},
			refuse: "writes its own GPUNode only",
		},
		{
			name: "the spec of a GPUNode",
			do: func(ctx context.Context) error {
				n := decided("b")
				return agent.Patch(ctx, n, client.Merge, client.DryRunAll)
			},
			refuse: "cannot patch resource",
		},
		{name: "a GPUNode without a node of its own", do: create(unbound, gpuNode("a")), refuse: "must be bound"},
		{name: "reading its Node", do: func(ctx context.Context) error { return agent.Get(ctx, client.ObjectKeyFromObject(a), &corev1.Node{}) }},
		{
			name:   "listing claims",
			do:     func(ctx context.Context) error { return agent.List(ctx, &resourceapi.ResourceClaimList{}) },
			refuse: "cannot list resource",
		},
		{
			name:   "creating a pod",
			do:     create(agent, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}),
			refuse: "cannot create resource",
		},
		{
			name: "evicting a pod",
			do: func(ctx context.Context) error {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "p"}}
				return agent.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
			},
			refuse: "cannot create resource",
		},
		{
			name:   "changing a pool",
			do:     create(agent, &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}),
			refuse: "cannot create resource",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.do(t.Context())
			switch {
			case tc.refuse == "" && err != nil:
				t.Errorf("want it allowed, got: %v", err)
			case tc.refuse != "" && err == nil:
				t.Error("want it refused, it was allowed")
			case tc.refuse != "" && !strings.Contains(err.Error(), tc.refuse):
				t.Errorf("want a refusal that says %q, got: %v", tc.refuse, err)
			}
		})
	}
}

// waitForPolicy waits until the API server enforces the new policy.
func waitForPolicy(t *testing.T, agent client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), policyTimeout)
	defer cancel()
	err := stack.Poll(ctx, "the policy is enforced", func(ctx context.Context) (bool, error) {
		return agent.Create(ctx, gpuNode("c"), client.DryRunAll) != nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
