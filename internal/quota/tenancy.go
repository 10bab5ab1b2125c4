// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Admits decides whether a namespace may use a pool at all; nil: it may. The domain is the namespace's, nil where it has
// no quota.
func Admits(pool *v1alpha1.GPUPool, namespace string, namespaceLabels map[string]string, domain *Domain) *Refusal {
	tenancy := &pool.Spec.Tenancy
	if !selects(tenancy.NamespaceSelector, namespaceLabels) {
		return &Refusal{
			Reason: RefusedTenancy, Never: true, Namespace: namespace,
			Sentence: fmt.Sprintf("GPUPool %s is not for namespace %s: its tenancy.namespaceSelector does not choose it", pool.Name, namespace),
		}
	}
	if tenancy.Quota != v1alpha1.QuotaRequired {
		return nil
	}
	if domain != nil && slices.ContainsFunc(domain.Of(namespace), func(q Quota) bool { return q.Counts(pool.Name) }) {
		return nil
	}
	return &Refusal{
		Reason: RefusedNoQuota, Never: true, Namespace: namespace,
		Sentence: fmt.Sprintf("GPUPool %s gives nothing to a namespace without a GPUQuota that counts it, and %s has none: "+
			"the platform team has to create one", pool.Name, namespace),
	}
}

// Ending refuses what is asked for in a namespace that is being deleted.
func Ending(namespace string) *Refusal {
	return &Refusal{
		Reason: RefusedTenancy, Never: true, Namespace: namespace,
		Sentence: fmt.Sprintf("namespace %s is being deleted: nothing is allocated in it any more", namespace),
	}
}
