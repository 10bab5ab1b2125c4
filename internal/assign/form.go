// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// noOvercommit is what is published where a pool promises no more than there is, in percent.
const noOvercommit int32 = 100

// Decision is what a pool makes of a GPU that it holds.
func Decision(pool *v1alpha1.GPUPool, uuid string) v1alpha1.GPUDecision {
	d := v1alpha1.GPUDecision{
		UUID:           uuid,
		Pool:           pool.Name,
		Partitioning:   Partitioning(pool),
		Sharing:        pool.SharingMode(),
		MemoryPercent:  noOvercommit,
		ComputePercent: noOvercommit,
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
		d.Compute = sharing.Compute
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

// sameForm says whether a GPU can go from one decision to the other while tenants run: ratios, defaults and bounds may
// differ, the pool and the kind of device may not.
func sameForm(a, b v1alpha1.GPUDecision) bool {
	return a.Pool == b.Pool && a.Partitioning == b.Partitioning && a.Sharing == b.Sharing
}

// Selects says whether a pool's selectors match a GPU. Of a GPU that the agent does not report only the UUID is known:
// its product and minor are taken to match, so that a lost GPU does not leave its pool.
func Selects(pool *v1alpha1.GPUPool, nodeLabels map[string]string, uuid string, gpu *v1alpha1.GPUStatus) bool {
	return SelectsNode(pool, nodeLabels) && selectsGPU(pool, uuid, gpu)
}

// selectsGPU says whether a pool's gpuSelector matches a GPU.
func selectsGPU(pool *v1alpha1.GPUPool, uuid string, gpu *v1alpha1.GPUStatus) bool {
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
			return matchesProduct(pattern, gpu.Product)
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

// matchesProduct compares a pattern with a product as NVML names it and as node labels spell it.
func matchesProduct(pattern, product string) bool {
	return matches(pattern, product) || matches(pattern, strings.ReplaceAll(product, " ", "-"))
}

// matches compares a pattern, in which * stands for any characters, with all of a text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, middle, last := parts[0], parts[1:len(parts)-1], parts[len(parts)-1]
	rest, found := strings.CutPrefix(text, first)
	if !found {
		return false
	}
	for _, part := range middle {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, last)
}
