// SPDX-License-Identifier: Apache-2.0

package standing

import (
	"context"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// statusOf is a quota's status, without times and generations.
func (r *Reconciler) statusOf(q *quota.Quota, s quota.Standing, counted *quota.Ledger, pools []v1alpha1.GPUPool) v1alpha1.GPUQuotaStatus {
	facts := quota.StatusFacts{Entry: counted.Namespaces[q.Namespace], MissingPools: missing(q.Pools, pools)}
	if r.options.Blocked != nil {
		facts.Blocked = r.options.Blocked(q.Namespace)
	}
	var waiting int32
	if r.options.Waiting != nil {
		waiting = r.options.Waiting.Of(q.Namespace)
	}
	return v1alpha1.GPUQuotaStatus{
		Conditions: q.Conditions(s, facts),
		Summary:    quota.Summary(q.Hard, s.Used, waiting),
		Used:       s.Used.API(), Borrowed: s.Borrowed.API(), Lent: s.Lent.API(),
		Waiting: ptr.To(waiting),
	}
}

func missing(named []string, pools []v1alpha1.GPUPool) []string {
	var gone []string
	for _, name := range named {
		if !slices.ContainsFunc(pools, func(p v1alpha1.GPUPool) bool { return p.Name == name }) {
			gone = append(gone, name)
		}
	}
	return gone
}

// write writes a quota's status where it changed, then says in events what became different.
func (r *Reconciler) write(ctx context.Context, key types.NamespacedName, status v1alpha1.GPUQuotaStatus) error {
	object := &v1alpha1.GPUQuota{}
	if err := r.client.Get(ctx, key, object); err != nil {
		return client.IgnoreNotFound(err) //nolint:wrapcheck // gone, or the next event comes
	}
	before := object.DeepCopy()
	status.ObservedGeneration = object.Generation
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = object.Generation
	}
	status.Conditions = keepTransitions(before.Status.Conditions, status.Conditions)
	if apiequality.Semantic.DeepEqual(before.Status, status) {
		return nil
	}
	object.Status = status
	if err := r.client.Status().Patch(ctx, object, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of quota %s: %w", key, err)
	}
	r.announce(object, before.Status.Conditions)
	return nil
}

// keepTransitions gives each condition the time at which its status last changed.
func keepTransitions(before, after []metav1.Condition) []metav1.Condition {
	merged := slices.Clone(before)
	for _, c := range after {
		meta.SetStatusCondition(&merged, c)
	}
	return merged
}
