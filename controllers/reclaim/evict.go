// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/controllers/eviction"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// slack is how far the clocks of the API server and of the manager may be apart.
const slack = 10 * time.Second

// evict evicts, for each waiting pod all of its victims or none: where a disruption budget forbids one, none is evicted
// and the next look finds others. It says when to look again.
func (r *Reconciler) evict(ctx context.Context, ledger string, plan quota.Plan, t terms, now time.Time) (time.Duration, error) {
	for first := 0; first < len(plan.Victims); {
		end := first
		for end < len(plan.Victims) && plan.Victims[end].For.UID == plan.Victims[first].For.UID {
			end++
		}
		blocked, err := r.evictFor(ctx, ledger, plan.Victims[first:end], t, now)
		if err != nil {
			return 0, err
		}
		if blocked {
			return time.Second, nil // the plan for those behind may change with it
		}
		first = end
	}
	return again, nil
}

// evictFor asks first whether all may be evicted, then evicts them.
func (r *Reconciler) evictFor(ctx context.Context, ledger string, victims []quota.Victim, t terms, now time.Time) (blocked bool, err error) {
	for _, dry := range []bool{true, false} {
		for i := range victims {
			why, err := r.evictHolder(ctx, &victims[i], t, now.Add(t.grace+slack), dry)
			if err != nil {
				return false, err
			}
			if why == "" {
				continue
			}
			r.metrics.blocked(victims[i].Namespace)
			if r.Blocked.add(ledger, &victims[i], why, now) {
				r.isBlocked(&victims[i], why)
			}
			return true, nil
		}
	}
	return false, nil
}

// evictHolder evicts the pods of one holder, or asks whether it may. why is what forbids it.
func (r *Reconciler) evictHolder(ctx context.Context, victim *quota.Victim, t terms, by time.Time, dry bool) (why string, err error) {
	for _, name := range victim.Pods {
		pod := &corev1.Pod{}
		if err := r.Live.Get(ctx, client.ObjectKey{Namespace: victim.Namespace, Name: name}, pod); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return "", fmt.Errorf("reading pod %s/%s before its eviction: %w", victim.Namespace, name, err)
		}
		if !runs(pod, by) {
			continue
		}
		if !dry {
			r.willBeEvicted(pod, victim)
		}
		why, err := r.evictPod(ctx, pod, t, dry)
		if err != nil || why != "" {
			return why, err
		}
		if !dry {
			r.metrics.evicted(victim.Namespace)
			r.wasEvicted(pod, victim)
		}
	}
	return "", nil
}

// evictPod evicts exactly this pod. It gets the time to end that it asks for, at most the cohort's grace.
func (r *Reconciler) evictPod(ctx context.Context, pod *corev1.Pod, t terms, dry bool) (why string, err error) {
	own := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(min(own, int64(t.grace/time.Second)))}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return eviction.Ask(ctx, r.Client, pod, options) //nolint:wrapcheck // it says which pod
}
