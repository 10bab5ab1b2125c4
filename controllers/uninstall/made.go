// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/certs"
	"github.com/sluice-gpu/sluice/controllers/quota/peer"
)

// LeaderLease is the Lease of the manager's leader election.
const LeaderLease = "sluice-manager"

// programTime bounds how long pods may take to end.
const programTime = time.Minute

// deletePrograms ends agents and manager, which would make anew what is deleted after them. Their own deletion, by who
// uninstalls, finds them gone.
func (o Options) deletePrograms(ctx context.Context) error {
	for _, program := range []client.Object{
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: "sluice-node-agent"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: "sluice-manager"}},
	} {
		if err := client.IgnoreNotFound(o.Client.Delete(ctx, program, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			return fmt.Errorf("deleting %s: %w", program.GetName(), err)
		}
	}
	left, err := o.wait(ctx, programTime, func(ctx context.Context) ([]string, error) {
		pods := &corev1.PodList{}
		err := o.Client.List(ctx, pods, client.InNamespace(o.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "sluice"},
			client.HasLabels{"app.kubernetes.io/component"})
		if err != nil {
			return nil, fmt.Errorf("listing the pods: %w", err)
		}
		var names []string
		for _, pod := range pods.Items {
			if component := pod.Labels["app.kubernetes.io/component"]; component == "manager" || component == "node-agent" {
				names = append(names, pod.Name)
			}
		}
		return names, nil
	})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		o.Log.Info("Pods do not end; their nodes may be away", "pods", enumerate(left))
	}
	return nil
}

// deleteMade deletes the objects that no chart knows of.
func (o Options) deleteMade(ctx context.Context) error {
	marked := client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}
	for _, kind := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{list: &v1alpha1.GPUNodeList{}},
		{list: &v1alpha1.GPULedgerList{}},
		{list: &resourceapi.ResourceClaimTemplateList{}, options: []client.ListOption{marked}},
		{list: &resourceapi.DeviceClassList{}, options: []client.ListOption{marked}},
	} {
		if err := o.Client.List(ctx, kind.list, kind.options...); err != nil {
			return fmt.Errorf("listing what there is: %w", err)
		}
		if err := meta.EachListItem(kind.list, func(item runtime.Object) error { return o.remove(ctx, item) }); err != nil {
			return fmt.Errorf("deleting each: %w", err)
		}
	}
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: o.Namespace, Name: name} }
	for _, object := range []client.Object{
		&coordinationv1.Lease{ObjectMeta: in(LeaderLease)},
		&coordinationv1.Lease{ObjectMeta: in(peer.LeaseName)},
		&corev1.Secret{ObjectMeta: in(certs.SecretName)},
	} {
		if err := client.IgnoreNotFound(o.Client.Delete(ctx, object)); err != nil {
			return fmt.Errorf("deleting %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// remove deletes an object. The finalizers that it may have are the manager's, which has ended.
func (o Options) remove(ctx context.Context, item runtime.Object) error {
	object, ok := item.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", item)
	}
	if len(object.GetFinalizers()) > 0 {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(o.Client.Patch(ctx, object, patch)); err != nil {
			return fmt.Errorf("releasing %s: %w", object.GetName(), err)
		}
	}
	if err := client.IgnoreNotFound(o.Client.Delete(ctx, object)); err != nil {
		return fmt.Errorf("deleting %s: %w", object.GetName(), err)
	}
	return nil
}
