// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// DrainPolicy says what happens to tenants of a GPU that is to change.
// +kubebuilder:validation:Enum=Wait;Evict
type DrainPolicy string

const (
	// DrainWait waits until they have finished by themselves.
	DrainWait DrainPolicy = "Wait"
	// DrainEvict evicts their pods when the grace period is over, as PodDisruptionBudgets allow.
	DrainEvict DrainPolicy = "Evict"
)

// What holds where a pool does not say.
const (
	// DefaultMaxUnavailable is how many GPUs of a pool change at once.
	DefaultMaxUnavailable int32 = 1
	// DefaultGracePeriod is how long tenants get to finish before they are evicted.
	DefaultGracePeriod = 600 * time.Second
)

// Rollout says how a change of the pool reaches GPUs that have tenants.
// +kubebuilder:validation:MinProperties=1
type Rollout struct {
	// maxUnavailable is how many GPUs of the pool take no new tenants at once because they change: a number from 1, or a
	// percentage from 1% to 100% of the pool's GPUs, rounded up. Changes that take nothing away do not count.
	// Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : int(self) >= 1",message="maxUnavailable is a number of GPUs from 1, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// drain is Wait (tenants of a GPU that changes finish by themselves) or Evict (their pods are evicted when
	// gracePeriodSeconds are over, as PodDisruptionBudgets allow). What else holds a GPU is always waited for. Default: Wait.
	// +optional
	// +kubebuilder:default=Wait
	Drain DrainPolicy `json:"drain,omitempty"`

	// gracePeriodSeconds is how long tenants get to finish before they are evicted, from the moment at which the GPU
	// takes no new ones, 0 to 86400. With drain Evict only. Default: 600.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`
}

// ExcludedGPU is a GPU that takes no new tenants although the pool selects it.
type ExcludedGPU struct {
	// uuid is the GPU's UUID, GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	UUID string `json:"uuid,omitempty"`

	// reason is for people: why the GPU is excluded, 1 to 128 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
}

// PoolRollout counts GPUs of a pool by how far the change to the form that the pool wants has come.
type PoolRollout struct {
	// done is how many GPUs are as the pool wants them.
	// +required
	// +kubebuilder:validation:Minimum=0
	Done *int32 `json:"done,omitempty"`

	// changing is how many are being changed.
	// +required
	// +kubebuilder:validation:Minimum=0
	Changing *int32 `json:"changing,omitempty"`

	// waiting is how many wait because maxUnavailable GPUs are being changed.
	// +required
	// +kubebuilder:validation:Minimum=0
	Waiting *int32 `json:"waiting,omitempty"`

	// refused is how many stay as they are because there is no layout for them, or their board cannot hold it.
	// +required
	// +kubebuilder:validation:Minimum=0
	Refused *int32 `json:"refused,omitempty"`

	// away is how many are lost or excluded.
	// +required
	// +kubebuilder:validation:Minimum=0
	Away *int32 `json:"away,omitempty"`
}

// RepackingGain says how many instances of a profile a pool could give, now and after a drain.
type RepackingGain struct {
	// profile is the MIG profile's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Profile string `json:"profile,omitempty"`

	// now is how many more instances of the profile fit beside those that are allocated.
	// +required
	// +kubebuilder:validation:Minimum=0
	Now *int32 `json:"now,omitempty"`

	// afterDrain is how many would fit if the instances of each GPU were placed anew.
	// +required
	// +kubebuilder:validation:Minimum=0
	AfterDrain *int32 `json:"afterDrain,omitempty"`
}

// Drain is the drain policy in force.
func (p *GPUPool) Drain() DrainPolicy {
	if p.Spec.Rollout.Drain == "" {
		return DrainWait
	}
	return p.Spec.Rollout.Drain
}

// GracePeriod is how long tenants get to finish before they are evicted.
func (p *GPUPool) GracePeriod() time.Duration {
	if seconds := p.Spec.Rollout.GracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return DefaultGracePeriod
}

// MaxUnavailable is how many of a number of GPUs may change at once, at least 1.
func (p *GPUPool) MaxUnavailable(gpus int) int {
	if p.Spec.Rollout.MaxUnavailable == nil {
		return int(DefaultMaxUnavailable)
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(p.Spec.Rollout.MaxUnavailable, gpus, true)
	if err != nil {
		return int(DefaultMaxUnavailable)
	}
	return max(most, int(DefaultMaxUnavailable))
}
