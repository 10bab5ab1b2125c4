// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/internal/rollouts"
)

const (
	// retryBlocked is how soon an eviction is tried again that a PodDisruptionBudget did not let happen.
	retryBlocked = 10 * time.Second
	// patience is how long an evicted pod is left alone: it has its own time to end.
	patience = time.Minute
)

// evictor asks for evictions, each pod's only now and then.
type evictor struct {
	client client.Client
	clock  clock.PassiveClock
	// asked is when a pod's eviction was last granted, by UID. One reconciliation at a time uses it.
	asked map[string]time.Time
}

func newEvictor(c client.Client, clock clock.PassiveClock) *evictor {
	return &evictor{client: c, clock: clock, asked: map[string]time.Time{}}
}

// outcome is what became of evictions.
type outcome struct {
	done    []rollouts.Eviction
	blocked []string
	failure error
	// wait is how soon to try again; 0: not at all.
	wait time.Duration
}

// evict asks for the eviction of each pod. A pod that is gone, or another one of its name, is none that is in the way.
func (e *evictor) evict(ctx context.Context, evictions []rollouts.Eviction) outcome {
	var out outcome
	now := e.clock.Now()
	for uid, at := range e.asked {
		if now.Sub(at) >= patience {
			delete(e.asked, uid)
		}
	}
	for _, eviction := range evictions {
		if _, asked := e.asked[eviction.UID]; asked {
			out.wait = patience
			continue
		}
		err := e.ask(ctx, eviction)
		switch {
		case err == nil:
			e.asked[eviction.UID] = now
			out.done = append(out.done, eviction)
			out.wait = patience
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		case apierrors.IsTooManyRequests(err):
			out.blocked = append(out.blocked, eviction.Name)
		default:
			out.failure = errors.Join(out.failure, err)
		}
	}
	if len(out.blocked) > 0 {
		out.wait = retryBlocked
	}
	return out
}

func (e *evictor) ask(ctx context.Context, eviction rollouts.Eviction) error {
	pod, err := podOf(eviction)
	if err != nil {
		return err
	}
	request := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: ptr.To(pod.UID)},
		},
	}
	if err := e.client.SubResource("eviction").Create(ctx, pod, request); err != nil {
		return fmt.Errorf("asking for the eviction of pod %s: %w", eviction.Name, err)
	}
	return nil
}

// podOf is the pod of an eviction as far as it is known: its names and its UID.
func podOf(eviction rollouts.Eviction) (*corev1.Pod, error) {
	name, err := rollouts.PodOf(eviction.Holder)
	if err != nil {
		return nil, fmt.Errorf("finding whom to evict: %w", err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: name.Namespace, Name: name.Name, UID: types.UID(eviction.UID),
	}}, nil
}
