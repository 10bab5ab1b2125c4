// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/layout/product"
)

// noOvercommit is what is published where a pool promises no more than there is, in percent.
const noOvercommit int32 = 100

// Decision is what a pool makes of a GPU that it holds, but for the instances of its layout.
func Decision(pool *v1alpha1.GPUPool, uuid string) v1alpha1.GPUDecision {
	d := v1alpha1.GPUDecision{
		UUID:           uuid,
		Pool:           pool.Name,
		Partitioning:   Partitioning(pool),
		Strategy:       Strategy(pool),
		Sharing:        pool.SharingMode(),
		MemoryPercent:  noOvercommit,
		ComputePercent: noOvercommit,
	}
	if d.Strategy == v1alpha1.MIGDynamic {
		d.KeepIdleSeconds = ptr.Deref(pool.Spec.Partitioning.MIG.KeepIdleSeconds, 0)
	}
	if d.Sharing == v1alpha1.SharingExclusive {
		return d
	}
	if o := pool.Spec.Overcommit; o != nil {
		d.MemoryPercent, d.ComputePercent = max(o.MemoryPercent, noOvercommit), max(o.ComputePercent, noOvercommit)
	}
	sharing := pool.Spec.Sharing
	d.MaxTenants = cmp.Or(sharing.MaxTenantsPerDevice, v1alpha1.DefaultMaxTenants)
	if sharing.DefaultMemory != nil {
		d.DefaultMemory = ptr.To(sharing.DefaultMemory.DeepCopy())
	}
	if sharing.DefaultCompute != nil {
		d.DefaultCompute = ptr.To(*sharing.DefaultCompute)
	}
	if d.Sharing == v1alpha1.SharingSoftware {
		d.Compute, d.MemoryLimits, d.OnViolation = sharing.Compute, sharing.MemoryLimits, sharing.OnViolation
	}
	if d.Sharing == v1alpha1.SharingTimeSlicing {
		d.TimeSlice = sharing.TimeSlice
	}
	return d
}

// Partitioning is how a pool divides its GPUs; None where it does not say.
func Partitioning(pool *v1alpha1.GPUPool) v1alpha1.PartitioningType {
	if pool.Spec.Partitioning.Type == "" {
		return v1alpha1.PartitioningNone
	}
	return pool.Spec.Partitioning.Type
}

// Strategy is how the MIG instances of a pool come about; "" where its GPUs stay whole.
func Strategy(pool *v1alpha1.GPUPool) v1alpha1.MIGStrategy {
	switch mig := pool.Spec.Partitioning.MIG; {
	case Partitioning(pool) != v1alpha1.PartitioningMIG || mig == nil:
		return ""
	case mig.Strategy == "":
		return v1alpha1.MIGDynamic
	default:
		return mig.Strategy
	}
}

// SameForm says whether a GPU can go from one decision to the other while tenants run: ratios, defaults and bounds may
// differ, the pool and the kind of device may not. Which instances a layout has is another question.
func SameForm(a, b v1alpha1.GPUDecision) bool {
	return a.Pool == b.Pool && a.Partitioning == b.Partitioning && a.Sharing == b.Sharing && StrategyOf(a) == StrategyOf(b)
}

// StrategyOf is the strategy of a decision; "" where the GPU stays whole.
func StrategyOf(d v1alpha1.GPUDecision) v1alpha1.MIGStrategy {
	if d.Partitioning != v1alpha1.PartitioningMIG {
		return ""
	}
	return cmp.Or(d.Strategy, v1alpha1.MIGDynamic)
}

// Selects says whether a pool's selectors match a GPU. Of a GPU that the agent does not report only the UUID is known:
// its product and minor are taken to match, so that a lost GPU does not leave its pool.
func Selects(pool *v1alpha1.GPUPool, nodeLabels map[string]string, uuid string, gpu *v1alpha1.GPUStatus) bool {
	return SelectsNode(pool, nodeLabels) && SelectsGPU(pool, uuid, gpu)
}

// SelectsGPU says whether a pool's gpuSelector matches a GPU.
func SelectsGPU(pool *v1alpha1.GPUPool, uuid string, gpu *v1alpha1.GPUStatus) bool {
	s := pool.Spec.GPUSelector
	switch {
	case len(s.UUIDs) > 0 && !slices.Contains(s.UUIDs, uuid):
		return false
	case gpu == nil:
		return true
	case len(s.Minors) > 0 && !slices.Contains(s.Minors, ptr.Deref(gpu.Minor, -1)):
		return false
	default:
		return len(s.Products) == 0 || slices.ContainsFunc(s.Products, func(pattern string) bool {
			return product.Matches(pattern, gpu.Product)
		})
	}
}

// SelectsNode says whether a pool's nodeSelector matches a node's labels. One that cannot be read matches none.
func SelectsNode(pool *v1alpha1.GPUPool, nodeLabels map[string]string) bool {
	selector, err := NodeSelector(pool)
	return err == nil && selector.Matches(labels.Set(nodeLabels))
}

// NodeSelector reads a pool's nodeSelector. The API server takes selectors that cannot be read: it checks neither keys
// nor values.
func NodeSelector(pool *v1alpha1.GPUPool) (labels.Selector, error) {
	if pool.Spec.NodeSelector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("reading the nodeSelector: %w", err)
	}
	return selector, nil
}
