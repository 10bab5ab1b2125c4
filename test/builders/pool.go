// SPDX-License-Identifier: Apache-2.0

package builders

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// PoolNodeLabel is the node label by which pools of tests choose nodes.
const PoolNodeLabel = "node-restriction.kubernetes.io/gpu-pool"

// Pool builds a GPUPool.
type Pool struct{ pool v1alpha1.GPUPool }

// MakePool starts a pool of whole GPUs shared in software, on the nodes labelled for it.
func MakePool(name string) *Pool {
	return &Pool{pool: v1alpha1.GPUPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.GPUPoolSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{PoolNodeLabel: name}},
			Partitioning: v1alpha1.Partitioning{Type: v1alpha1.PartitioningNone},
		},
	}}
}

// Nodes chooses nodes by the value of PoolNodeLabel.
func (p *Pool) Nodes(value string) *Pool {
	p.pool.Spec.NodeSelector.MatchLabels[PoolNodeLabel] = value
	return p
}

// MIG divides the GPUs with MIG, dynamically.
func (p *Pool) MIG() *Pool {
	p.pool.Spec.Partitioning = v1alpha1.Partitioning{
		Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGDynamic},
	}
	return p
}

// Static divides the GPUs with MIG, each into count instances of a profile.
func (p *Pool) Static(profile string, count int32) *Pool {
	p.pool.Spec.Partitioning = v1alpha1.Partitioning{
		Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{
			Strategy: v1alpha1.MIGStatic,
			Layouts:  []v1alpha1.MIGLayout{{Name: "all", Instances: []v1alpha1.MIGCount{{Profile: profile, Count: count}}}},
		},
	}
	return p
}

// Rollout sets how changes reach the GPUs.
func (p *Pool) Rollout(maxUnavailable string, drain v1alpha1.DrainPolicy, graceSeconds int32) *Pool {
	p.pool.Spec.Rollout = v1alpha1.Rollout{
		MaxUnavailable: ptr.To(intstr.Parse(maxUnavailable)), Drain: drain, GracePeriodSeconds: &graceSeconds,
	}
	return p
}

// Excluded excludes GPUs.
func (p *Pool) Excluded(uuids ...string) *Pool {
	for _, uuid := range uuids {
		p.pool.Spec.Excluded = append(p.pool.Spec.Excluded, v1alpha1.ExcludedGPU{UUID: uuid, Reason: "fan"})
	}
	return p
}

// Mode sets the sharing mode.
func (p *Pool) Mode(mode v1alpha1.SharingMode) *Pool {
	p.pool.Spec.Sharing.Mode = mode
	return p
}

// Overcommit sets the ratios in percent.
func (p *Pool) Overcommit(memory, compute int32) *Pool {
	p.pool.Spec.Overcommit = &v1alpha1.Overcommit{MemoryPercent: memory, ComputePercent: compute}
	return p
}

// DefaultMemory sets what a share has whose claim names no amount.
func (p *Pool) DefaultMemory(amount string) *Pool {
	p.pool.Spec.Sharing.DefaultMemory = ptr.To(resource.MustParse(amount))
	return p
}

// MaxTenants sets how many shares a GPU gives.
func (p *Pool) MaxTenants(n int32) *Pool {
	p.pool.Spec.Sharing.MaxTenantsPerDevice = n
	return p
}

// RequireQuota closes the pool to namespaces without a quota.
func (p *Pool) RequireQuota() *Pool {
	p.pool.Spec.Tenancy.Quota = v1alpha1.QuotaRequired
	return p
}

// For opens the pool to namespaces with a label only.
func (p *Pool) For(key, value string) *Pool {
	p.pool.Spec.Tenancy.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	return p
}

// Cohort offers a cohort to the namespaces with a label.
func (p *Pool) Cohort(name, key, value string) *Pool {
	p.pool.Spec.Tenancy.Cohorts = append(p.pool.Spec.Tenancy.Cohorts, v1alpha1.Cohort{
		Name: name, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
	})
	return p
}

// Default makes it the pool of pods that name none.
func (p *Pool) Default() *Pool {
	p.pool.Spec.Default = ptr.To(true)
	return p
}

// Obj returns the pool.
func (p *Pool) Obj() *v1alpha1.GPUPool { return p.pool.DeepCopy() }
