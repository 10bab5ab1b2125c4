// SPDX-License-Identifier: Apache-2.0

package builders

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Image is what tenants of tests run; no simulated node pulls it.
const Image = "registry.k8s.io/pause:3.10"

// Pod builds a tenant's pod.
type Pod struct{ pod corev1.Pod }

// MakePod starts a pod of one container, named main, that asks for nothing.
func MakePod(name string) *Pod {
	return &Pod{pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1), // 0 would delete by force, past kubelet
			Containers:                    []corev1.Container{{Name: "main", Image: Image}},
		},
	}}
}

// Namespace moves the pod.
func (p *Pod) Namespace(name string) *Pod {
	p.pod.Namespace = name
	return p
}

// Pool names the pool the pod's GPUs come from.
func (p *Pod) Pool(name string) *Pod {
	p.pod.Labels = maps.Clone(p.pod.Labels)
	if p.pod.Labels == nil {
		p.pod.Labels = map[string]string{}
	}
	p.pod.Labels[v1alpha1.PoolLabel] = name
	return p
}

// Limit adds a limit to the pod's last container.
func (p *Pod) Limit(name, amount string) *Pod {
	c := &p.pod.Spec.Containers[len(p.pod.Spec.Containers)-1]
	if c.Resources.Limits == nil {
		c.Resources.Limits = corev1.ResourceList{}
	}
	c.Resources.Limits[corev1.ResourceName(name)] = resource.MustParse(amount)
	return p
}

// Memory asks for GPU memory.
func (p *Pod) Memory(amount string) *Pod { return p.Limit(v1alpha1.ResourceMemory, amount) }

// Compute asks for compute.
func (p *Pod) Compute(percent string) *Pod { return p.Limit(v1alpha1.ResourceCompute, percent) }

// Container adds another container; limits that follow are its own.
func (p *Pod) Container(name string) *Pod {
	p.pod.Spec.Containers = append(p.pod.Spec.Containers, corev1.Container{Name: name, Image: Image})
	return p
}

// Claim gives the pod's last container a claim made from a template.
func (p *Pod) Claim(template string) *Pod {
	p.pod.Spec.ResourceClaims = append(p.pod.Spec.ResourceClaims,
		corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: ptr.To(template)})
	c := &p.pod.Spec.Containers[len(p.pod.Spec.Containers)-1]
	c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: "gpu"})
	return p
}

// Obj returns the pod.
func (p *Pod) Obj() *corev1.Pod { return p.pod.DeepCopy() }
