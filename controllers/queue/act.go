// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// release lifts a pod's gate, and nothing else of it. A pod that has waited then says that it was let go.
func (r *Reconciler) release(ctx context.Context, pod *corev1.Pod, notes podNotes, now time.Time) error {
	gone, err := r.patch(ctx, pod, map[string]any{
		"spec": map[string]any{"schedulingGates": []map[string]any{{"$patch": "delete", "name": v1alpha1.QuotaGate}}},
	}, r.Client.Patch)
	if err != nil || gone {
		return err
	}
	noted := notes[pod.UID]
	waited := hasWaited(pod) || (!noted.toldAt.IsZero() && noted.told.status == corev1.ConditionFalse)
	noted.released = true
	notes[pod.UID] = noted
	r.metrics.released(pod.Namespace, now.Sub(pod.CreationTimestamp.Time))
	if !waited {
		return nil
	}
	r.wasReleased(pod)
	return r.tell(ctx, released(pod), notes, now)
}

// tell writes where a pod stands.
func (r *Reconciler) tell(ctx context.Context, w word, notes podNotes, now time.Time) error {
	changed := now
	if before := conditionOf(w.pod); before != nil && before.Status == w.status {
		changed = before.LastTransitionTime.Time
	}
	condition := corev1.PodCondition{
		Type: v1alpha1.PodQuotaReserved, Status: w.status, Reason: w.reason, Message: w.message,
		LastProbeTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(changed),
	}
	gone, err := r.patch(ctx, w.pod, map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{condition}}},
		func(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
			return r.Client.Status().Patch(ctx, object, patch)
		})
	if err != nil || gone {
		return err
	}
	noted := notes[w.pod.UID]
	first := noted.toldAt.IsZero() && conditionOf(w.pod) == nil
	noted.told, noted.toldAt = w, now
	notes[w.pod.UID] = noted
	if first && w.status == corev1.ConditionFalse {
		r.isQueued(w)
	}
	return nil
}

type patchFunc func(context.Context, client.Object, client.Patch, ...client.PatchOption) error

// patch changes a part of exactly this pod. One that is gone meanwhile, or made again, needs nothing.
func (r *Reconciler) patch(ctx context.Context, pod *corev1.Pod, change map[string]any, patch patchFunc) (gone bool, err error) {
	change["metadata"] = map[string]any{"uid": pod.UID}
	encoded, err := json.Marshal(change)
	if err != nil {
		return false, fmt.Errorf("encoding a change of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, encoded))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("changing pod %s/%s: %w", pod.Namespace, pod.Name, err)
	default:
		return false, nil
	}
}
