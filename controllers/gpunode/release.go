// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/view"
)

// withoutNode lets a GPUNode go whose Node is gone: what ran there is gone with it. A cache that has not seen a new Node
// yet looks the same, so the API server has the word.
func (r *Reconciler) withoutNode(ctx context.Context, name string) error {
	gpuNode := &v1alpha1.GPUNode{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, gpuNode); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading GPUNode %s: %w", name, err)
	}
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, view.NodeMetadata())
	switch {
	case apierrors.IsNotFound(err):
		return r.release(ctx, gpuNode, "its Node is gone")
	case err != nil:
		return fmt.Errorf("asking the API server for node %s: %w", name, err)
	default:
		return nil // the Node reaches the cache as an event of its own
	}
}

// release takes the finalizer off a GPUNode.
func (r *Reconciler) release(ctx context.Context, node *v1alpha1.GPUNode, why string) error {
	changed := node.DeepCopy()
	if !controllerutil.RemoveFinalizer(changed, v1alpha1.NodeFinalizer) {
		return nil
	}
	err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of GPUNode %s: %w", node.Name, err)
	}
	log.FromContext(ctx).Info("Released the GPUNode", "because", why)
	return nil
}
