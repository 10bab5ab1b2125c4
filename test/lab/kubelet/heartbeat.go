// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	leaseInterval = 10 * time.Second
	leaseSeconds  = 40
	// retryInterval is how soon a heartbeat that failed is tried again.
	retryInterval = time.Second
)

// heartbeat renews the node's lease and its Ready condition until the context ends.
func (k *kubelet) heartbeat(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := leaseInterval
		if err := k.beat(ctx); err != nil && ctx.Err() == nil {
			k.Log.Warn("heartbeat", "error", err)
			next = retryInterval
		}
		timer.Reset(next)
	}
}

func (k *kubelet) beat(ctx context.Context) error {
	node, err := k.Client.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	if err := k.renewLease(ctx, node.UID); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": ReadyConditions(node.Status.Conditions, k.Now())}})
	if err != nil {
		return fmt.Errorf("encoding the node's conditions: %w", err)
	}
	if _, err := k.Client.CoreV1().Nodes().PatchStatus(ctx, k.Node, patch); err != nil {
		return fmt.Errorf("writing the node's conditions: %w", err)
	}
	return nil
}

func (k *kubelet) renewLease(ctx context.Context, node types.UID) error {
	leases := k.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(k.Now())
	lease, err := leases.Get(ctx, k.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name:            k.Node,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.Node, UID: node}},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &k.Node, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating the node's lease: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the node's lease: %w", err)
	}
	lease.Spec.RenewTime = &now
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("renewing the node's lease: %w", err)
	}
	return nil
}

// ReadyConditions are the conditions of a node that is well, given those it has: a time of change stays where the status does.
func ReadyConditions(old []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now)
	fresh := []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the simulated kubelet serves"},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
	}
	for i := range fresh {
		fresh[i].LastHeartbeatTime, fresh[i].LastTransitionTime = at, at
		for _, o := range old {
			if o.Type == fresh[i].Type && o.Status == fresh[i].Status {
				fresh[i].LastTransitionTime = o.LastTransitionTime
			}
		}
	}
	return fresh
}
