// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// tellTime bounds the writing of one event, so that an API server that is slow does not keep the loop.
const tellTime = 5 * time.Second

// Tell writes an event on a pod of this node.
func (c *APICluster) Tell(ctx context.Context, namespace string, pod checkpoint.Pod, eventType, reason, message string) error {
	return c.tell(ctx, namespace, corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: types.UID(pod.UID),
	}, eventType, reason, message)
}

// TellNode writes an event on this node's GPUNode. Events of what has no namespace are in the default one.
func (c *APICluster) TellNode(ctx context.Context, node *v1alpha1.GPUNode, eventType, reason, message string) error {
	return c.tell(ctx, metav1.NamespaceDefault, corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode", Name: node.Name, UID: node.UID,
	}, eventType, reason, message)
}

func (c *APICluster) tell(ctx context.Context, namespace string, of corev1.ObjectReference, eventType, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: "sluice-gpu-"},
		InvolvedObject: of,
		Type:           eventType, Reason: reason, Message: shortened(message), Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: "sluice-node-agent", Host: c.NodeName},
		ReportingController: v1alpha1.DriverName, ReportingInstance: c.NodeName,
	}
	if err := c.Direct.Create(ctx, event); err != nil {
		return fmt.Errorf("writing an event on %s %s: %w", of.Kind, of.Name, err)
	}
	return nil
}

// shortened cuts a message to what the API server takes in an event.
func shortened(message string) string {
	const most = 1024
	if len(message) <= most {
		return message
	}
	const end = "…"
	return strings.ToValidUTF8(message[:most-len(end)], "") + end
}
