// SPDX-License-Identifier: Apache-2.0

package paper

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// beat is how often a node says that it is alive.
	beat = 10 * time.Second
	// retry is how soon what failed is tried again.
	retry = 200 * time.Millisecond
	// finishers is how many pods end at once.
	finishers = 8
)

// Keep does what kubelets would do for nodes on paper until the context ends: it renews their leases, and ends pods that
// are being deleted. It goes on when the API server goes away and comes back.
func Keep(ctx context.Context, c client.WithWatch) {
	ending := make(chan client.ObjectKey, 4096)
	for range finishers {
		go finish(ctx, c, ending)
	}
	go heartbeats(ctx, c)
	for ctx.Err() == nil {
		_ = watchPods(ctx, c, ending) // the next look shows what this one missed
		pause(ctx, retry)
	}
}

func watchPods(ctx context.Context, c client.WithWatch, ending chan<- client.ObjectKey) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		see(&pods.Items[i], ending)
	}
	w, err := c.Watch(ctx, &corev1.PodList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: pods.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted {
			see(pod, ending)
		}
	}
	return nil
}

func see(pod *corev1.Pod, ending chan<- client.ObjectKey) {
	if pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" {
		ending <- client.ObjectKeyFromObject(pod)
	}
}

// finish removes pods that are being deleted.
func finish(ctx context.Context, c client.Client, ending <-chan client.ObjectKey) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-ending:
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			for ctx.Err() == nil {
				err := c.Delete(ctx, pod, client.GracePeriodSeconds(0))
				if err == nil || apierrors.IsNotFound(err) {
					break
				}
				pause(ctx, retry)
			}
		}
	}
}

// heartbeats renews the leases of all nodes that are on paper only.
func heartbeats(ctx context.Context, c client.Client) {
	for ctx.Err() == nil {
		next := beat
		if renew(ctx, c) != nil {
			next = retry
		}
		pause(ctx, next)
	}
}

func renew(ctx context.Context, c client.Client) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if len(node.Status.Conditions) == 0 || node.Status.Conditions[0].Reason != "OnPaper" {
			continue
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name}}
		err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return fmt.Errorf("reading the lease of node %s: %w", node.Name, err)
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(node.Name), ptr.To(metav1.NowMicro())
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](40)
		if missing {
			err = c.Create(ctx, lease)
		} else {
			err = c.Update(ctx, lease)
		}
		if err != nil {
			return fmt.Errorf("renewing the lease of node %s: %w", node.Name, err)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
