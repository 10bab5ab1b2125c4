// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// MayAsk says whether a pod may get devices of Sluice: it has claims, whose classes tell nothing for certain, or asks for
// extended resources of Sluice's classes.
func MayAsk(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || AsksExtended(pod)
}

// AsksExtended says whether a pod asks for extended resources of Sluice's classes.
func AsksExtended(pod *corev1.Pod) bool {
	asks := func(c corev1.Container) bool {
		for name, quantity := range c.Resources.Limits {
			if classOf(string(name)) != "" && quantity.Sign() > 0 {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}

// Gated says whether a pod waits for its namespace's quota.
func Gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, isGate)
}

func isGate(gate corev1.PodSchedulingGate) bool { return gate.Name == v1alpha1.QuotaGate }

// Queues says whether pods of a namespace wait for room: any of its quotas has them wait. A nil domain is that of a
// namespace without a quota.
func (d *Domain) Queues(namespace string) bool {
	return d != nil && slices.ContainsFunc(d.Of(namespace), func(q Quota) bool { return q.Queue })
}

// Gate gives a new pod of a namespace the scheduling gate, where pods wait for room there and this one may ask for some.
// A pod that names its node passes no scheduler, so no gate holds it and nothing is allocated to it. Doing it again changes
// nothing.
func (d *Domain) Gate(pod *corev1.Pod, namespace string) {
	if Gated(pod) || pod.Spec.NodeName != "" || !d.Queues(namespace) || !MayAsk(pod) {
		return
	}
	pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.QuotaGate})
}
