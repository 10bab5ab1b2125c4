// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
)

// costs tells what pods cost that have no devices yet.
type costs struct {
	claims  client.Reader
	catalog quota.Catalog
	ledger  *quota.Ledger
	counted map[string]bool // UIDs of claims that a pod before waits for
}

// of is a pod with the least that it will cost. A claim that is allocated, or about to be, costs nothing more.
func (c *costs) of(ctx context.Context, pod *corev1.Pod, now time.Time) (Pod, error) {
	placed := Pod{Object: pod, Line: quota.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
		Priority: ptr.Deref(pod.Spec.Priority, 0), Since: pod.CreationTimestamp.Time,
		Stuck: !quota.Gated(pod) && now.Sub(letGo(pod)) >= settled,
	}}
	if gates := otherGates(pod); len(gates) > 0 {
		placed.Apart = "other scheduling gates come first: " + strings.Join(gates, ", ")
	}
	var demand quota.Demand
	for i := range pod.Spec.ResourceClaims {
		more, missing, err := c.claim(ctx, pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return Pod{}, err
		}
		if missing != "" && placed.Apart == "" {
			placed.Apart = missing
		}
		demand = demand.Plus(more)
	}
	extended, err := c.extended(ctx, pod)
	if err != nil {
		return Pod{}, err
	}
	placed.Line.Cost = demand.Plus(extended)
	return placed, nil
}

// letGo is since when a pod that is not gated may be scheduled.
func letGo(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == v1alpha1.PodQuotaReserved && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// claim is what one of a pod's claims costs, or why that is not known yet.
func (c *costs) claim(ctx context.Context, pod *corev1.Pod, reference *corev1.PodResourceClaim) (quota.Demand, string, error) {
	name, needed := claimName(pod, reference)
	if !needed {
		return quota.Demand{}, "", nil
	}
	if name == "" {
		demand, known := c.template(pod, *reference.ResourceClaimTemplateName)
		if !known {
			return quota.Demand{}, fmt.Sprintf("its claim of template %s is not there yet", *reference.ResourceClaimTemplateName), nil
		}
		return demand, "", nil
	}
	claim := &resourceapi.ResourceClaim{}
	if err := c.claims.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim); err != nil {
		if apierrors.IsNotFound(err) {
			return quota.Demand{}, fmt.Sprintf("its claim %s is not there", name), nil
		}
		return quota.Demand{}, "", fmt.Errorf("reading claim %s/%s: %w", pod.Namespace, name, err)
	}
	return c.unallocated(pod, claim), "", nil
}

// claimName is the name of the claim that a pod refers to; "" for one that is still to be made from a template.
func claimName(pod *corev1.Pod, reference *corev1.PodResourceClaim) (name string, needed bool) {
	if reference.ResourceClaimName != nil {
		return *reference.ResourceClaimName, true
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if status := &pod.Status.ResourceClaimStatuses[i]; status.Name == reference.Name {
			return ptr.Deref(status.ResourceClaimName, ""), status.ResourceClaimName != nil
		}
	}
	return "", reference.ResourceClaimTemplateName != nil
}

// template is what a claim will cost of a template that Sluice makes, as the pod's own request says. A request that
// was forged lets the pod go too early or too late, and no more: what is allocated is judged.
func (c *costs) template(pod *corev1.Pod, name string) (quota.Demand, bool) {
	hash, ours := request.HashOfTemplate(name)
	encoded := pod.Annotations[v1alpha1.RequestAnnotation]
	if !ours || request.Hash(encoded) != hash {
		return quota.Demand{}, false
	}
	canonical, err := request.Decode(encoded)
	if err != nil {
		return quota.Demand{}, false
	}
	spec := request.Template(&canonical)
	return c.catalog.LeastOf(&spec.Spec), true
}

// unallocated is what a claim will cost. One that several pods wait for counts for the first.
func (c *costs) unallocated(pod *corev1.Pod, claim *resourceapi.ResourceClaim) quota.Demand {
	uid := string(claim.UID)
	if _, reserved := c.ledger.Reservations[uid]; reserved || claim.Status.Allocation != nil || c.counted[uid] {
		return quota.Demand{}
	}
	if !quota.Gated(pod) {
		c.counted[uid] = true
	}
	return c.catalog.LeastOf(&claim.Spec)
}

// extended is what the claim costs that the scheduler makes of a pod's extended resources.
func (c *costs) extended(ctx context.Context, pod *corev1.Pod) (quota.Demand, error) {
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil {
		return c.catalog.LeastOfExtended(&pod.Spec), nil
	}
	claim := &resourceapi.ResourceClaim{}
	err := c.claims.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: status.ResourceClaimName}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return c.catalog.LeastOfExtended(&pod.Spec), nil
	case err != nil:
		return quota.Demand{}, fmt.Errorf("reading claim %s/%s: %w", pod.Namespace, status.ResourceClaimName, err)
	}
	return c.unallocated(pod, claim), nil
}
