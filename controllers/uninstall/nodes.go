// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// leaveNodes asks each node's agent to remove what it keeps on the node, and waits until all have. What an agent that does
// not answer leaves behind is no reason to keep the rest.
func (o Options) leaveNodes(ctx context.Context) error {
	left, err := o.wait(ctx, o.NodeTime, func(ctx context.Context) ([]string, error) {
		nodes := &v1alpha1.GPUNodeList{}
		if err := o.Client.List(ctx, nodes); err != nil {
			return nil, fmt.Errorf("listing the GPUNodes: %w", err)
		}
		for i := range nodes.Items {
			if err := o.ask(ctx, &nodes.Items[i]); err != nil {
				return nil, err
			}
		}
		return present(nodes.Items), nil
	})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		o.Log.Info("Agents have not left their nodes in time. What they keep is still there: MIG instances, and files in the "+
			"directories of the agent's flags, by default /run/sluice, /run/sluice-mps and /var/lib/sluice",
			"nodes", enumerate(left), "waited", o.NodeTime.String())
	}
	return nil
}

// ask tells a node's agent to leave.
func (o Options) ask(ctx context.Context, node *v1alpha1.GPUNode) error {
	if node.Leaving() {
		return nil
	}
	changed := node.DeepCopy()
	if changed.Spec == nil {
		changed.Spec = &v1alpha1.GPUNodeSpec{}
	}
	changed.Spec.Leave = ptr.To(true)
	if err := client.IgnoreNotFound(o.Client.Patch(ctx, changed, client.MergeFrom(node))); err != nil {
		return fmt.Errorf("asking the agent of node %s to leave: %w", node.Name, err)
	}
	return nil
}

// present says of each node whose agent has not left it what its agent says.
func present(nodes []v1alpha1.GPUNode) []string {
	var found []string
	for _, node := range nodes {
		ready := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.NodeReady)
		switch {
		case ready == nil:
			found = append(found, node.Name+" (its agent has never reported)")
		case ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonLeft:
		default:
			found = append(found, fmt.Sprintf("%s (%s: %s)", node.Name, ready.Reason, ready.Message))
		}
	}
	return found
}
