// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Quota is a GPUQuota as decisions see it.
type Quota struct {
	// Namespace and Name are the object's.
	Namespace, Name string
	// Created is when it was made.
	Created time.Time
	// Pools are the pools that it counts, in order; nil: all.
	Pools []string
	// Cohort is the cohort that it names; "" for none.
	Cohort string
	// Joined is true where it belongs to that cohort. JoinReason and JoinMessage say why or why not.
	Joined                  bool
	JoinReason, JoinMessage string
	// Hard is the most that the namespace may hold. What it does not name is not bounded.
	Hard Amounts
	// Guaranteed is what comes back from others.
	Guaranteed Amounts
	// Default, Min and Max are of one device of a claim.
	Default, Min, Max Amounts
	// Queue is true where pods wait for room instead of being refused.
	Queue bool
}

// String names the quota as messages do.
func (q *Quota) String() string { return fmt.Sprintf("GPUQuota %s/%s", q.Namespace, q.Name) }

// Counts says whether the quota counts a pool.
func (q *Quota) Counts(pool string) bool { return counts(q.Pools, pool) }

func viewOf(object *v1alpha1.GPUQuota) Quota {
	spec := &object.Spec
	view := Quota{
		Namespace: object.Namespace, Name: object.Name, Created: object.CreationTimestamp.Time,
		Cohort: spec.Cohort, Hard: FromAPI(spec.Hard), Guaranteed: FromAPI(spec.Guaranteed),
		Default: FromAPI(spec.PerClaim.Default), Min: FromAPI(spec.PerClaim.Min), Max: FromAPI(spec.PerClaim.Max),
		Queue: spec.Enforcement == v1alpha1.EnforcementQueue,
	}
	if len(spec.Pools) > 0 {
		view.Pools = slices.Sorted(slices.Values(spec.Pools))
	}
	return view
}

// Domain is what one ledger judges: the quotas of a cohort's namespaces, or those of one namespace.
type Domain struct {
	// Ledger is the name of the GPULedger.
	Ledger string
	// Quotas are those of the domain's namespaces, by namespace, then age, then name.
	Quotas []Quota
}

// Of are the quotas of a namespace, the oldest first.
func (d *Domain) Of(namespace string) []Quota {
	first, found := slices.BinarySearchFunc(d.Quotas, namespace, func(q Quota, n string) int { return strings.Compare(q.Namespace, n) })
	if !found {
		return nil
	}
	end := first
	for end < len(d.Quotas) && d.Quotas[end].Namespace == namespace {
		end++
	}
	return d.Quotas[first:end]
}

// Namespaces are the names of the domain's namespaces, in order.
func (d *Domain) Namespaces() []string {
	var names []string
	for i := range d.Quotas {
		if i == 0 || d.Quotas[i-1].Namespace != d.Quotas[i].Namespace {
			names = append(names, d.Quotas[i].Namespace)
		}
	}
	return names
}

// Domains divides quotas into domains, by ledger name. Each namespace with a quota is in exactly one, which its quotas
// alone decide: the cohort that the oldest of them names, joined or not. A quota that is being deleted still holds.
func Domains(objects []v1alpha1.GPUQuota, pools []v1alpha1.GPUPool, namespaceLabels map[string]map[string]string) map[string]*Domain {
	quotas := make([]Quota, 0, len(objects))
	for i := range objects {
		quotas = append(quotas, viewOf(&objects[i]))
	}
	slices.SortFunc(quotas, func(a, b Quota) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	domains := map[string]*Domain{}
	for first := 0; first < len(quotas); {
		end := first
		for end < len(quotas) && quotas[end].Namespace == quotas[first].Namespace {
			end++
		}
		own := quotas[first:end]
		cohort := cohortOf(own)
		for i := range own {
			own[i].join(cohort, pools, namespaceLabels[own[i].Namespace])
		}
		name := ledgerName(own[0].Namespace, cohort)
		if domains[name] == nil {
			domains[name] = &Domain{Ledger: name}
		}
		domains[name].Quotas = append(domains[name].Quotas, own...)
		first = end
	}
	return domains
}

// cohortOf is the cohort of a namespace: the one that its oldest quota names.
func cohortOf(own []Quota) string {
	for i := range own {
		if own[i].Cohort != "" {
			return own[i].Cohort
		}
	}
	return ""
}

// LedgerOf is the name of the ledger of a namespace with these quotas; "" where it has none.
func LedgerOf(namespace string, objects []v1alpha1.GPUQuota) string {
	for name := range Domains(slices.DeleteFunc(slices.Clone(objects), func(q v1alpha1.GPUQuota) bool {
		return q.Namespace != namespace
	}), nil, nil) {
		return name
	}
	return ""
}

func ledgerName(namespace, cohort string) string {
	if cohort != "" {
		return v1alpha1.LedgerCohortPrefix + cohort
	}
	return v1alpha1.LedgerNamespacePrefix + namespace
}

// join decides whether a quota belongs to the cohort that it names.
func (q *Quota) join(cohort string, pools []v1alpha1.GPUPool, namespaceLabels map[string]string) {
	switch {
	case q.Cohort == "":
		q.JoinReason, q.JoinMessage = v1alpha1.ReasonNoCohort, "the quota names no cohort"
		return
	case q.Cohort != cohort:
		q.JoinReason = v1alpha1.ReasonOtherCohort
		q.JoinMessage = fmt.Sprintf("an older quota of the namespace names cohort %s, and a namespace has one: nothing is guaranteed here", cohort)
		return
	}
	for _, name := range q.Pools {
		if !offers(pools, name, cohort, namespaceLabels) {
			q.JoinReason = v1alpha1.ReasonCohortNotOffered
			q.JoinMessage = fmt.Sprintf("pool %s does not offer cohort %s to the namespace (tenancy.cohorts): nothing is guaranteed, hard holds", name, cohort)
			return
		}
	}
	q.Joined, q.JoinReason = true, v1alpha1.ReasonJoined
	q.JoinMessage = fmt.Sprintf("belongs to cohort %s", cohort)
}

func offers(pools []v1alpha1.GPUPool, name, cohort string, namespaceLabels map[string]string) bool {
	i := slices.IndexFunc(pools, func(p v1alpha1.GPUPool) bool { return p.Name == name })
	if i < 0 {
		return false
	}
	for _, offered := range pools[i].Spec.Tenancy.Cohorts {
		if offered.Name == cohort {
			return selects(offered.NamespaceSelector, namespaceLabels)
		}
	}
	return false
}

// selects says whether a selector chooses labels. Unset chooses all, one that cannot be read none.
func selects(selector *metav1.LabelSelector, namespaceLabels map[string]string) bool {
	if selector == nil {
		return true
	}
	read, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && read.Matches(labels.Set(namespaceLabels))
}
