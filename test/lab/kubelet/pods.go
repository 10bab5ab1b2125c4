// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	sweepInterval = time.Second
	busyRetry     = 50 * time.Millisecond
)

// next works on one pod; false means that the queue is shut down.
func (k *kubelet) next(ctx context.Context) bool {
	key, quit := k.queue.Get()
	if quit {
		return false
	}
	defer k.queue.Done(key)
	again, err := k.sync(ctx, key)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errBusy):
		k.queue.AddAfter(key, busyRetry)
	case apierrors.IsConflict(err):
		// Somebody else wrote the pod; its new version is on its way.
		k.queue.AddAfter(key, busyRetry)
	case err != nil:
		k.Log.Warn("a pod waits", "pod", key, "error", err)
		k.queue.AddRateLimited(key)
	default:
		k.queue.Forget(key)
		if again > 0 {
			k.queue.AddAfter(key, again)
		}
	}
	return true
}

// sync does the next step for a pod.
func (k *kubelet) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return 0, fmt.Errorf("reading the pod's key: %w", err)
	}
	pod, err := k.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil // the sweep gives its claims back
	}
	if err != nil {
		return 0, fmt.Errorf("reading the pod: %w", err)
	}
	_, deleted := k.deleted.Load(pod.UID)
	todo, again := decide(pod, local{claims: len(k.preparer.checkpoint.ofPod(pod.UID)) > 0, deleted: deleted, now: k.Now()})
	switch todo {
	case stepStart:
		return 0, k.start(ctx, pod)
	case stepEnd:
		return 0, k.writeStatus(ctx, pod, ended(pod, exitCode(pod), k.Now()))
	case stepRelease:
		if err := k.preparer.unprepare(ctx, pod.UID); err != nil {
			if !errors.Is(err, errBusy) {
				k.events.Eventf(pod, corev1.EventTypeWarning, reasonFailedUnprepare, "Failed to unprepare dynamic resources: %v", err)
			}
			return 0, fmt.Errorf("unpreparing: %w", err)
		}
		return time.Millisecond, nil // the next step follows at once
	case stepDelete:
		return 0, k.finalize(ctx, pod)
	case stepNone:
	}
	return again, nil
}

// start prepares the pod's claims and reports it as running.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	claims, err := fetchClaims(ctx, k.Client, pod)
	if err != nil {
		return k.blocked(ctx, pod, reasonFailedPrepare, "ContainerCreating", fmt.Errorf("failed to prepare dynamic resources: %w", err))
	}
	prepared, err := k.preparer.prepare(ctx, pod.UID, claims)
	if errors.Is(err, errBusy) {
		return err
	}
	if err != nil {
		return k.blocked(ctx, pod, reasonFailedPrepare, "ContainerCreating", fmt.Errorf("failed to prepare dynamic resources: %w", err))
	}
	record, err := makeRecord(pod, claims, prepared, k.CDI)
	if err != nil {
		return k.blocked(ctx, pod, reasonFailed, "CreateContainerError", fmt.Errorf("failed to create a container: %w", err))
	}
	if err := writeJSON(k.recordPath(pod.UID), record); err != nil {
		return err
	}
	return k.writeStatus(ctx, pod, running(pod, k.Now()))
}

// blocked tells, in an event and in the pod's status, why the pod does not start, and returns the cause.
func (k *kubelet) blocked(ctx context.Context, pod *corev1.Pod, reason, waiting string, cause error) error {
	k.events.Event(pod, corev1.EventTypeWarning, reason, cause.Error())
	if err := k.writeStatus(ctx, pod, pending(pod, waiting, cause.Error(), k.Now())); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// Event reasons, as the real kubelet's.
const (
	reasonFailedPrepare   = "FailedPrepareDynamicResources"
	reasonFailedUnprepare = "FailedUnprepareDynamicResources"
	reasonFailed          = "Failed"
)

// writeStatus writes a pod's status unless it is as it should be.
func (k *kubelet) writeStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	if sameStatus(pod.Status, status) {
		return nil
	}
	updated := pod.DeepCopy()
	updated.Status = status
	_, err := k.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the pod's status: %w", err)
	}
	return nil
}

// finalize deletes a pod that has ended here.
func (k *kubelet) finalize(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	err := k.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	// A conflict means that the name has passed to another pod already.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the pod: %w", err)
	}
	k.deleted.Store(pod.UID, struct{}{})
	return nil
}

// sweepForever looks for claims and records of pods that vanished without a word: force-deleted, or gone while the
// kubelet was away.
func (k *kubelet) sweepForever(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		if err := k.sweep(ctx); err != nil && ctx.Err() == nil {
			k.Log.Warn("sweeping up after vanished pods", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep reads what was kept before it reads which pods there are: a pod is known before anything is kept for it, so
// what belongs to none of them is truly left over.
func (k *kubelet) sweep(ctx context.Context) error {
	claims := k.preparer.checkpoint.all()
	records, err := os.ReadDir(k.recordDir())
	if err != nil {
		return fmt.Errorf("listing the pods' records: %w", err)
	}
	alive := map[types.UID]bool{}
	for _, pod := range k.list() {
		alive[pod.UID] = true
	}
	k.deleted.Range(func(uid, _ any) bool {
		if pod, ok := uid.(types.UID); ok && !alive[pod] {
			k.deleted.Delete(uid)
		}
		return true
	})
	var errs []error
	for _, pod := range orphans(claims, alive) {
		if err := k.preparer.unprepare(ctx, pod); err != nil && !errors.Is(err, errBusy) {
			errs = append(errs, err)
		}
	}
	for _, record := range records {
		uid, isRecord := strings.CutSuffix(record.Name(), ".json")
		if isRecord && !alive[types.UID(uid)] {
			errs = append(errs, os.Remove(filepath.Join(k.recordDir(), record.Name())))
		}
	}
	return errors.Join(errs...)
}

// orphans lists the pods that have claims but do not exist any more.
func orphans(claims []preparedClaim, alive map[types.UID]bool) []types.UID {
	var list []types.UID
	for _, claim := range claims {
		for _, pod := range claim.Pods {
			if !alive[pod] && !slices.Contains(list, pod) {
				list = append(list, pod)
			}
		}
	}
	return list
}

func (k *kubelet) list() []*corev1.Pod {
	pods, err := k.pods.List(labels.Everything())
	if err != nil {
		k.Log.Error("listing pods", "error", err)
	}
	return pods
}

func (k *kubelet) recordPath(uid types.UID) string {
	return filepath.Join(k.recordDir(), string(uid)+".json")
}
