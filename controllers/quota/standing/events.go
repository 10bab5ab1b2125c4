// SPDX-License-Identifier: Apache-2.0

package standing

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Actions of a quota's events; the reasons are those of the conditions.
const (
	actionCount  = "Count"
	actionHold   = "Hold"
	actionJoin   = "Join"
	actionBorrow = "Borrow"
)

// announce sends an event for each condition whose status or reason is new. That a new quota has no trouble is no news.
func (r *Reconciler) announce(object *v1alpha1.GPUQuota, before []metav1.Condition) {
	for _, c := range object.Status.Conditions {
		old := meta.FindStatusCondition(before, c.Type)
		if old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		switch c.Type {
		case v1alpha1.QuotaReady:
			r.announceReady(object, c)
		case v1alpha1.QuotaExceeded:
			r.announceTurn(object, c, old, corev1.EventTypeWarning, actionHold)
		case v1alpha1.QuotaJoined:
			r.announceJoined(object, c)
		case v1alpha1.QuotaBorrowing:
			r.announceTurn(object, c, old, corev1.EventTypeNormal, actionBorrow)
		}
	}
}

func (r *Reconciler) announceReady(object *v1alpha1.GPUQuota, c metav1.Condition) {
	kind := corev1.EventTypeNormal
	if c.Status != metav1.ConditionTrue && c.Reason != v1alpha1.ReasonCounting {
		kind = corev1.EventTypeWarning
	}
	r.event(object, kind, c, actionCount)
}

// announceTurn says that a condition is True, and that it is not any more.
func (r *Reconciler) announceTurn(object *v1alpha1.GPUQuota, c metav1.Condition, old *metav1.Condition, kind, action string) {
	switch {
	case c.Status == metav1.ConditionTrue:
		r.event(object, kind, c, action)
	case old != nil && old.Status == metav1.ConditionTrue:
		r.event(object, corev1.EventTypeNormal, c, action)
	}
}

func (r *Reconciler) announceJoined(object *v1alpha1.GPUQuota, c metav1.Condition) {
	switch {
	case c.Reason == v1alpha1.ReasonNoCohort:
	case c.Status == metav1.ConditionTrue:
		r.event(object, corev1.EventTypeNormal, c, actionJoin)
	default:
		r.event(object, corev1.EventTypeWarning, c, actionJoin)
	}
}

func (r *Reconciler) event(object *v1alpha1.GPUQuota, kind string, c metav1.Condition, action string) {
	r.events.Eventf(object, nil, kind, c.Reason, action, "%s", c.Message)
}
