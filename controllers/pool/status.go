// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/poolstatus"
)

// writeStatus writes a pool's status where it changed, then says in events what became different.
func (r *Reconciler) writeStatus(ctx context.Context, pool *v1alpha1.GPUPool, result poolstatus.Result) error {
	status := result.Status
	before := pool.DeepCopy()
	status.Conditions = keepTransitions(before.Status.Conditions, status.Conditions)
	r.metrics.set(pool.Name, status, result.Use)
	if apiequality.Semantic.DeepEqual(before.Status, status) {
		return nil
	}
	pool.Status = status
	err := r.client.Status().Patch(ctx, pool, client.MergeFrom(before))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of pool %s: %w", pool.Name, err)
	}
	r.announce(pool, before.Status.Conditions)
	return nil
}

// keepTransitions gives each condition the time at which its status last changed.
func keepTransitions(before, after []metav1.Condition) []metav1.Condition {
	merged := make([]metav1.Condition, len(before))
	copy(merged, before)
	for _, c := range after {
		meta.SetStatusCondition(&merged, c)
	}
	return merged
}
