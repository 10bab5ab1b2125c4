// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// podOption changes a pod under construction.
type podOption func(*corev1.Pod)

func makePod(options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "job-"}}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func inPool(pool string) podOption {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, v1alpha1.PoolLabel, pool) }
}

// list makes a ResourceList of pairs; a name without a domain is one of ours.
func list(pairs ...string) corev1.ResourceList {
	made := corev1.ResourceList{}
	for pair := range slices.Chunk(pairs, 2) {
		name := pair[0]
		switch name {
		case "gpu", "gpu-memory", "gpu-compute", "gpu-mem":
			name = resourcePrefix + name
		}
		made[corev1.ResourceName(name)] = resource.MustParse(pair[1])
	}
	return made
}

// asking is a container with limits, which the API server copies to requests.
func asking(name string, pairs ...string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list(pairs...), Requests: list(pairs...)}}
}

func main(name string, pairs ...string) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, asking(name, pairs...)) }
}

// bound is a main container that refers to a request of the claim, and whose limits came later.
func bound(name, request string, pairs ...string) podOption {
	return func(p *corev1.Pod) {
		container := asking(name, pairs...)
		container.Resources.Claims = []corev1.ResourceClaim{{Name: ClaimName, Request: request}}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
}

func initial(name string, pairs ...string) podOption {
	return func(p *corev1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, asking(name, pairs...)) }
}

func sidecar(name string, pairs ...string) podOption {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		container := asking(name, pairs...)
		container.RestartPolicy = &always
		p.Spec.InitContainers = append(p.Spec.InitContainers, container)
	}
}

func claim(name, template string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template})
	}
}

func annotated(encoded string) podOption {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.RequestAnnotation, encoded) }
}

const (
	h100 = "NVIDIA H100 80GB HBM3"
	a100 = "NVIDIA A100-SXM4-80GB"
	a30  = "NVIDIA A30"
)

func changing(pool Pool, gpus int) Pool {
	pool.Changing = gpus
	return pool
}

func withoutNames(pool Pool) Pool {
	pool.NamedProfiles = false
	return pool
}

// mi is Mi in bytes.
func mi(n int64) int64 { return n * mebi }

func sharedPool(name string, gpus int) Pool {
	pool := Pool{Name: name, Form: Shared, LeastMemory: mi(704)}
	for range gpus {
		pool.GPUs = append(pool.GPUs, GPU{Node: "n1", Product: h100, Memory: mi(81152)})
	}
	return pool
}

func exclusivePool(name string, gpus int) Pool {
	pool := sharedPool(name, gpus)
	pool.Form = Exclusive
	return pool
}

func migPool(products ...string) Pool {
	boards := map[string][]Profile{
		a100: {
			{Name: "1g.10gb", Memory: mi(9728), Compute: 14}, {Name: "1g.10gb+me", Memory: mi(9728), Compute: 14},
			{Name: "1g.20gb", Memory: mi(19968), Compute: 14}, {Name: "2g.20gb", Memory: mi(19968), Compute: 28},
			{Name: "3g.40gb", Memory: mi(40192), Compute: 42}, {Name: "4g.40gb", Memory: mi(40192), Compute: 57},
			{Name: "7g.80gb", Memory: mi(80896), Compute: 100},
		},
		h100: {
			{Name: "1g.10gb", Memory: mi(9984), Compute: 14}, {Name: "1g.20gb", Memory: mi(20090), Compute: 14},
			{Name: "2g.20gb", Memory: mi(20090), Compute: 28}, {Name: "3g.40gb", Memory: mi(40448), Compute: 42},
			{Name: "4g.40gb", Memory: mi(40448), Compute: 57}, {Name: "7g.80gb", Memory: mi(81152), Compute: 100},
		},
		a30: {
			{Name: "1g.6gb", Memory: mi(5949), Compute: 25}, {Name: "2g.12gb", Memory: mi(11970), Compute: 50},
			{Name: "4g.24gb", Memory: mi(24002), Compute: 100},
		},
	}
	pool := Pool{Name: "mig", Form: MIG, NamedProfiles: true}
	for _, product := range products {
		pool.GPUs = append(pool.GPUs, GPU{Node: "n-" + product, Product: product})
		for _, profile := range boards[product] {
			profile.Product = product
			pool.Profiles = append(pool.Profiles, profile)
		}
	}
	return pool
}

func asDefault(pool Pool) Pool {
	pool.Default = true
	return pool
}

func deleting(pool Pool) Pool {
	pool.Deleting = true
	return pool
}

// quantities makes a list of what can be parsed; the rest is left out.
func quantities(amounts map[string]string) corev1.ResourceList {
	made := corev1.ResourceList{}
	for name, text := range amounts {
		if quantity, err := resource.ParseQuantity(text); err == nil {
			made[corev1.ResourceName(resourcePrefix+name)] = quantity
		}
	}
	return made
}
