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
	actionServe     = "Serve"
	actionContest   = "Contest"
	actionName      = "Name"
	actionDrain     = "Drain"
	actionGuarantee = "Guarantee"
	actionDivide    = "Divide"
	actionRollOut   = "RollOut"
	actionSchedule  = "Schedule"
	actionExclude   = "Exclude"
	actionWatch     = "Watch"
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
		case v1alpha1.PoolRollingOut:
			r.announceRollout(pool, c, old)
		case v1alpha1.PoolDraining:
			r.announceProgress(pool, c, old, actionDrain)
		case v1alpha1.PoolExcluding:
			r.announceProgress(pool, c, old, actionExclude)
		default:
			if action := troubles()[c.Type]; action != "" {
				r.announceTrouble(pool, c, old, action)
			}
		}
	}
}

// troubles are the conditions that are bad when True, with the action of their events.
func troubles() map[string]string {
	return map[string]string{
		v1alpha1.PoolContested:            actionContest,
		v1alpha1.PoolResourceNameConflict: actionName,
		v1alpha1.PoolOverGuaranteed:       actionGuarantee,
		v1alpha1.PoolLayoutInvalid:        actionDivide,
		v1alpha1.PoolScheduleConflict:     actionSchedule,
		v1alpha1.PoolUnhealthy:            actionWatch,
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

// announceProgress says who is waited for, and that nobody is any more.
func (r *Reconciler) announceProgress(pool *v1alpha1.GPUPool, c metav1.Condition, old *metav1.Condition, action string) {
	if c.Status == metav1.ConditionTrue || old != nil {
		r.event(pool, corev1.EventTypeNormal, c, action)
	}
}

// announceRollout says how a rollout goes on, and warns where it cannot.
func (r *Reconciler) announceRollout(pool *v1alpha1.GPUPool, c metav1.Condition, old *metav1.Condition) {
	if c.Reason == v1alpha1.ReasonChangeFailed {
		r.event(pool, corev1.EventTypeWarning, c, actionRollOut)
		return
	}
	r.announceProgress(pool, c, old, actionRollOut)
}

func (r *Reconciler) event(pool *v1alpha1.GPUPool, kind string, c metav1.Condition, action string) {
	r.events.Eventf(pool, nil, kind, c.Reason, action, "%s", c.Message)
}
