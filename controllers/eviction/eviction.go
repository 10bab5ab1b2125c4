// SPDX-License-Identifier: Apache-2.0

// Package eviction asks the API server for the eviction of pods, and tells what stands against one from what is broken.
package eviction

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long one eviction may take: the API server asks to wait while a disruption budget is being counted.
const patience = 5 * time.Second

var errPatience = errors.New("an eviction takes too long")

// Ask asks for the eviction of exactly this pod, with further options. why is what forbids it; a pod that is gone, or another one of
// its name, needs none.
func Ask(ctx context.Context, c client.Client, pod *corev1.Pod, options metav1.DeleteOptions) (why string, err error) {
	options.Preconditions = &metav1.Preconditions{UID: &pod.UID}
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	err = c.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errPatience):
		return "the API server has not decided on it yet", nil
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case apierrors.IsTooManyRequests(err):
		return err.Error(), nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		// As where somebody's admission policy protects a pod, or where its namespace is being deleted. Others may give.
		return err.Error(), nil
	case apierrors.IsInternalError(err):
		// As where several disruption budgets choose one pod, which the Eviction API does not serve.
		return err.Error(), nil
	default:
		return "", fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
}
