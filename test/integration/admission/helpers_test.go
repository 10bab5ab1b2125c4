// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/request"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// patience bounds every wait; a wait that succeeds is far shorter.
const patience = 30 * time.Second

// nodeFacts are a node's GPUs as its agent would report them.
type nodeFacts struct {
	name, pool, product, memory string
	gpus                        int
	profiles                    []v1alpha1.MIGProfile
}

func profile(name, memory string, compute int32) v1alpha1.MIGProfile {
	return v1alpha1.MIGProfile{Product: "NVIDIA A100-SXM4-80GB", Name: name, Memory: ptr.To(resource.MustParse(memory)), Compute: compute}
}

// create makes the Node and the GPUNode, and waits until the manager has given every GPU to the pool.
func (n nodeFacts) create(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{builders.PoolNodeLabel: n.pool}}}
	if err := cluster.Client.Create(ctx, node); err != nil {
		return fmt.Errorf("creating node %s: %w", n.name, err)
	}
	gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if err := cluster.Client.Create(ctx, gpuNode); err != nil {
		return fmt.Errorf("creating GPUNode %s: %w", n.name, err)
	}
	gpuNode.Status.Profiles = n.profiles
	for i := range n.gpus {
		gpuNode.Status.GPUs = append(gpuNode.Status.GPUs, v1alpha1.GPUStatus{
			UUID: fmt.Sprintf("GPU-00000000-0000-0000-%04d-%012x", i, len(n.name)), Minor: ptr.To(int32(i)), Product: n.product,
			Memory: ptr.To(resource.MustParse(n.memory)),
		})
	}
	if err := cluster.Client.Status().Update(ctx, gpuNode); err != nil {
		return fmt.Errorf("reporting the GPUs of %s: %w", n.name, err)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return stack.Poll(waiting, "the GPUs of "+n.name+" belong to pool "+n.pool, func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(gpuNode), gpuNode)
		return len(gpuNode.Decisions()) == n.gpus, err
	})
}

// scene is what one test works with.
type scene struct {
	*testing.T
	namespace string
}

// newScene makes a namespace that goes away with the test.
func newScene(t *testing.T) scene {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-"}}
	if err := cluster.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s := scene{T: t, namespace: namespace.Name}
	s.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		pods := &corev1.Pod{}
		if err := cluster.Client.DeleteAllOf(ctx, pods, client.InNamespace(s.namespace), client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
		if err := cluster.Client.Delete(ctx, namespace); err != nil {
			t.Error(err)
		}
	})
	return s
}

// create makes an object in the scene's namespace.
func (s scene) create(object client.Object, options ...client.CreateOption) {
	s.Helper()
	object.SetNamespace(s.namespace)
	if err := cluster.Client.Create(s.Context(), object, options...); err != nil {
		s.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

// wait polls until done says so.
func (s scene) wait(what string, done func(context.Context) (bool, error)) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		s.Fatal(err)
	}
}

// canonical is the request that admission wrote into a pod.
func (s scene) canonical(pod *corev1.Pod) string {
	s.Helper()
	encoded := pod.Annotations[v1alpha1.RequestAnnotation]
	if hash := request.Hash(encoded); pod.Labels[v1alpha1.RequestLabel] != hash {
		s.Errorf("label %q, want the annotation's hash %q", pod.Labels[v1alpha1.RequestLabel], hash)
	}
	return encoded
}

// template waits for the template that serves a pod.
func (s scene) template(pod *corev1.Pod) *resourceapi.ResourceClaimTemplate {
	s.Helper()
	template := &resourceapi.ResourceClaimTemplate{}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: request.TemplateName(request.Hash(s.canonical(pod)))}
	s.wait("template "+key.Name+" exists", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, key, template)
		return err == nil, client.IgnoreNotFound(err)
	})
	return template
}

// claim waits for the claim that Kubernetes makes from a pod's template.
func (s scene) claim(pod *corev1.Pod) *resourceapi.ResourceClaim {
	s.Helper()
	claim := &resourceapi.ResourceClaim{}
	s.wait("pod "+pod.Name+" has its claim", func(ctx context.Context) (bool, error) {
		if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		if len(pod.Status.ResourceClaimStatuses) == 0 || pod.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
			return false, nil
		}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}
		return true, cluster.Client.Get(ctx, key, claim)
	})
	return claim
}

// event waits for an event about a pod.
func (s scene) event(pod *corev1.Pod, reason string) *eventsv1.Event {
	s.Helper()
	var found *eventsv1.Event
	s.wait("pod "+pod.Name+" has an event "+reason, func(ctx context.Context) (bool, error) {
		events := &eventsv1.EventList{}
		if err := cluster.Client.List(ctx, events, client.InNamespace(pod.Namespace)); err != nil {
			return false, err
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.UID == pod.UID && e.Reason == reason {
				found = e
			}
		}
		return found != nil, nil
	})
	return found
}

// refusal is the sentence with which a pod is refused.
func (s scene) refusal(pod *corev1.Pod) string {
	s.Helper()
	pod.Namespace = s.namespace
	err := cluster.Client.Create(s.Context(), pod)
	if err == nil {
		s.Fatalf("pod %s was admitted", pod.Name)
	}
	if !apierrors.IsForbidden(err) {
		s.Errorf("refused by another error than Forbidden: %v", err)
	}
	_, sentence, found := strings.Cut(err.Error(), `admission webhook "pods.sluice.dev" denied the request: `)
	if !found {
		s.Errorf("refused by somebody else: %v", err)
	}
	return sentence
}

// initial adds an init container; a sidecar where it is always restarted.
func initial(pod *corev1.Pod, name, memory string, sidecar bool) *corev1.Pod {
	container := corev1.Container{Name: name, Image: builders.Image}
	if memory != "" {
		container.Resources.Limits = corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse(memory)}
	}
	if sidecar {
		container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	}
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
	return pod
}
