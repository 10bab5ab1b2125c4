// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

const gi = 1 << 30

// start is the time at which tests begin.
func start() time.Time { return time.Unix(1_000_000, 0).UTC() }

// amounts reads pairs of a name and a quantity.
func amounts(pairs ...string) Amounts {
	read := Amounts{}
	for pair := range slices.Chunk(pairs, 2) {
		read[pair[0]] = wholeOf(resource.MustParse(pair[1]))
	}
	return read
}

func inPool(pool string, pairs ...string) Charges { return Charges{pool: amounts(pairs...)} }

// apiAmounts is what people write in an object.
func apiAmounts(pairs ...string) v1alpha1.QuotaAmounts { return amounts(pairs...).API() }

type quotaOption func(*v1alpha1.GPUQuota)

func makeQuota(namespace, name string, options ...quotaOption) v1alpha1.GPUQuota {
	q := v1alpha1.GPUQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Time{Time: start()}}}
	for _, option := range options {
		option(&q)
	}
	return q
}

func hard(pairs ...string) quotaOption {
	return func(q *v1alpha1.GPUQuota) { q.Spec.Hard = apiAmounts(pairs...) }
}

func guaranteed(pairs ...string) quotaOption {
	return func(q *v1alpha1.GPUQuota) { q.Spec.Guaranteed = apiAmounts(pairs...) }
}

func ofPools(pools ...string) quotaOption {
	return func(q *v1alpha1.GPUQuota) { q.Spec.Pools = pools }
}

func inCohort(cohort string) quotaOption {
	return func(q *v1alpha1.GPUQuota) { q.Spec.Cohort = cohort }
}

func older(by time.Duration) quotaOption {
	return func(q *v1alpha1.GPUQuota) { q.CreationTimestamp = metav1.Time{Time: start().Add(-by)} }
}

// offering is a pool that offers cohorts to every namespace.
func offering(name string, cohorts ...string) v1alpha1.GPUPool {
	pool := v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, cohort := range cohorts {
		pool.Spec.Tenancy.Cohorts = append(pool.Spec.Tenancy.Cohorts, v1alpha1.Cohort{Name: cohort})
	}
	return pool
}

// domainOf is the one domain of quotas; pools p and q offer the cohort c.
func domainOf(quotas ...v1alpha1.GPUQuota) *Domain {
	for _, domain := range Domains(quotas, []v1alpha1.GPUPool{offering("p", "c"), offering("q", "c")}, nil) {
		return domain
	}
	return nil
}

// holding is a ledger in which namespaces were counted to hold charges.
func holding(domain *Domain, held map[string]Charges) *Ledger {
	l := NewLedger(domain.Ledger)
	for _, namespace := range domain.Namespaces() {
		charges := held[namespace]
		if charges == nil {
			charges = Charges{}
		}
		l.Namespaces[namespace] = Entry{Version: "100", Counted: charges}
	}
	return l
}

type result = resourceapi.DeviceRequestAllocationResult

func allocated(results ...result) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "claim", UID: types.UID("u")}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	return claim
}

func onDevice(device string) result {
	return result{Request: "r", Driver: v1alpha1.DriverName, Pool: "n1", Device: device}
}

func sharing(memory, compute string) result {
	r := onDevice("gpu-0")
	r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		"memory": resource.MustParse(memory), "compute": resource.MustParse(compute), "slots": resource.MustParse("1"),
	}
	return r
}

func published(name, pool, profile string, shared bool, memory, compute string) resourceapi.Device {
	d := resourceapi.Device{
		Name: name,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			v1alpha1.AttributePool: {StringValue: &pool}, v1alpha1.AttributeProfile: {StringValue: &profile},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory": {Value: resource.MustParse(memory)}, "compute": {Value: resource.MustParse(compute)},
		},
	}
	if shared {
		d.AllowMultipleAllocations = ptr.To(true)
	}
	return d
}

func slice(generation int64, devices ...resourceapi.Device) resourceapi.ResourceSlice {
	return resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: v1alpha1.DriverName, Pool: resourceapi.ResourcePool{Name: "n1", Generation: generation}, Devices: devices,
	}}
}

// knownFacts are a shared and an exclusive GPU and a MIG placement.
func knownFacts() Facts {
	return FactsOf([]resourceapi.ResourceSlice{slice(1,
		published("gpu-0", "soft", "", true, "160Gi", "200"),
		published("gpu-1", "whole", "", false, "80Gi", "100"),
		published("gpu-2-mig-1g10gb-0", "mig", "1g.10gb", false, "9984Mi", "14"),
		published("gpu-2-mig-1g10gbpme-0", "mig", "1g.10gb+me", false, "9984Mi", "14"),
		published("gpu-2-mig-3g40gb-0", "mig", "3g.40gb", false, "40448Mi", "42"),
	)}, nil)
}
