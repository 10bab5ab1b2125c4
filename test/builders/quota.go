// SPDX-License-Identifier: Apache-2.0

package builders

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Quota builds a GPUQuota.
type Quota struct{ quota v1alpha1.GPUQuota }

// MakeQuota starts a quota of a namespace that bounds nothing yet.
func MakeQuota(namespace, name string) *Quota {
	return &Quota{quota: v1alpha1.GPUQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.GPUQuotaSpec{Hard: v1alpha1.QuotaAmounts{}},
	}}
}

// Hard bounds an amount.
func (q *Quota) Hard(name, amount string) *Quota {
	q.quota.Spec.Hard[name] = v1alpha1.QuotaAmount{Quantity: resource.MustParse(amount)}
	return q
}

// Pools has it count in pools only.
func (q *Quota) Pools(names ...string) *Quota {
	q.quota.Spec.Pools = names
	return q
}

// Cohort has it belong to a cohort.
func (q *Quota) Cohort(name string) *Quota {
	q.quota.Spec.Cohort = name
	return q
}

// Guaranteed sets what comes back.
func (q *Quota) Guaranteed(name, amount string) *Quota {
	if q.quota.Spec.Guaranteed == nil {
		q.quota.Spec.Guaranteed = v1alpha1.QuotaAmounts{}
	}
	q.quota.Spec.Guaranteed[name] = v1alpha1.QuotaAmount{Quantity: resource.MustParse(amount)}
	return q
}

// PerClaim bounds one claim: default, least and most of an amount; "" for none.
func (q *Quota) PerClaim(name, byDefault, least, most string) *Quota {
	set := func(amounts *v1alpha1.ShareAmounts, amount string) {
		if amount == "" {
			return
		}
		if *amounts == nil {
			*amounts = v1alpha1.ShareAmounts{}
		}
		(*amounts)[name] = v1alpha1.QuotaAmount{Quantity: resource.MustParse(amount)}
	}
	set(&q.quota.Spec.PerClaim.Default, byDefault)
	set(&q.quota.Spec.PerClaim.Min, least)
	set(&q.quota.Spec.PerClaim.Max, most)
	return q
}

// Queue holds pods until there is room.
func (q *Quota) Queue() *Quota {
	q.quota.Spec.Enforcement = v1alpha1.EnforcementQueue
	return q
}

// Obj returns the quota.
func (q *Quota) Obj() *v1alpha1.GPUQuota { return q.quota.DeepCopy() }
