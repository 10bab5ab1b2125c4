// SPDX-License-Identifier: Apache-2.0

package pool

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Actions of a pool's events; the reasons are those of the conditions.
const (
	actionServe   = "Serve"
	actionContest = "Contest"
	actionName    = "Name"
	actionDrain   = "Drain"

	actionGuarantee = "Guarantee"
)

// eventRecorder is what the controller asks of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// announce sends an event for each condition whose status or reason is new.
func (r *Reconciler) announce(pool *v1alpha1.GPUPool, before []metav1.Condition) {
	for _, c := range pool.Status.Conditions {
		old := meta.FindStatusCondition(before, c.Type)
		if old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		switch c.Type {
		case v1alpha1.PoolReady:
			r.announceReady(pool, c)
		case v1alpha1.PoolContested:
			r.announceTrouble(pool, c, old, actionContest)
		case v1alpha1.PoolResourceNameConflict:
			r.announceTrouble(pool, c, old, actionName)
		case v1alpha1.PoolDraining:
			r.announceDraining(pool, c, old)
		case v1alpha1.PoolOverGuaranteed:
			r.announceTrouble(pool, c, old, actionGuarantee)
		}
	}
}

// announceReady says that a pool is served, or why not.
func (r *Reconciler) announceReady(pool *v1alpha1.GPUPool, c metav1.Condition) {
	kind := corev1.EventTypeNormal
	if c.Status != metav1.ConditionTrue && c.Reason != v1alpha1.ReasonDeleting && c.Reason != v1alpha1.ReasonGPUsNotPublished {
		kind = corev1.EventTypeWarning
	}
	r.event(pool, kind, c, actionServe)
}

// announceTrouble warns of a condition that is bad when True, and says when it is over. That it never was is no news.
func (r *Reconciler) announceTrouble(pool *v1alpha1.GPUPool, c metav1.Condition, old *metav1.Condition, action string) {
	switch {
	case c.Status == metav1.ConditionTrue:
		r.event(pool, corev1.EventTypeWarning, c, action)
	case old != nil:
		r.event(pool, corev1.EventTypeNormal, c, action)
	}
}

// announceDraining says who is waited for, and that nobody is any more.
func (r *Reconciler) announceDraining(pool *v1alpha1.GPUPool, c metav1.Condition, old *metav1.Condition) {
	if c.Status == metav1.ConditionTrue || old != nil {
		r.event(pool, corev1.EventTypeNormal, c, actionDrain)
	}
}

func (r *Reconciler) event(pool *v1alpha1.GPUPool, kind string, c metav1.Condition, action string) {
	r.events.Eventf(pool, nil, kind, c.Reason, action, "%s", c.Message)
}
