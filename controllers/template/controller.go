// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/request"
)

// unusedFor is how long no pod must have referred to a template before it is removed: a workload that is scaled to zero
// and back, or restarted, finds it again.
const unusedFor = 10 * time.Minute

// PoolReader tells what is known of the pools.
type PoolReader interface {
	// Pools are the pools as the manager's cache has them.
	Pools(ctx context.Context) ([]request.Pool, error)
}

// Reconciler keeps the template of one hash in one namespace.
type Reconciler struct {
	// Client reads pods' metadata and templates from the cache and writes templates.
	Client client.Client
	// Live asks the API server.
	Live client.Reader
	// Pools tells what is known of the pools.
	Pools PoolReader
	// Recorder writes events.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock

	idle idle
	told told
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaimtemplates,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile makes the template that pods refer to, or removes it when none has for a while.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	hash, ours := request.HashOfTemplate(key.Name)
	if !ours {
		return reconcile.Result{}, nil
	}
	pods, err := podsOf(ctx, r.Client, key.Namespace, hash)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.told.retain(key, pods)
	if len(pods) == 0 {
		return r.retire(ctx, key, hash)
	}
	r.idle.forget(key)
	found := judge(hash, pods)
	if found.canonical != nil {
		if err := r.ensure(ctx, render(key.Namespace, hash, found.encoded, found.canonical)); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, r.notify(ctx, key, found)
}

// podsOf are the pods that carry a hash.
func podsOf(ctx context.Context, reader client.Reader, namespace, hash string, options ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	options = append(options, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.RequestLabel: hash}, client.UnsafeDisableDeepCopy)
	if err := reader.List(ctx, pods, options...); err != nil {
		return nil, fmt.Errorf("listing the pods of request %s: %w", hash, err)
	}
	return pods.Items, nil
}

// ensure brings the template about. One that the cache does not have may still exist, without our label.
func (r *Reconciler) ensure(ctx context.Context, want *resourceapi.ResourceClaimTemplate) error {
	have := &resourceapi.ResourceClaimTemplate{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case err == nil:
		return r.repair(ctx, have, want)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading template %s: %w", want.Name, err)
	}
	err = r.create(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return fmt.Errorf("reading template %s, which is not ours: %w", want.Name, err)
	}
	return r.repair(ctx, have, want)
}

// create makes the template. In a namespace that is being deleted nothing can be made, and nothing has to.
func (r *Reconciler) create(ctx context.Context, want *resourceapi.ResourceClaimTemplate) error {
	err := r.Client.Create(ctx, want.DeepCopy())
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("creating template %s: %w", want.Name, err)
}

// repair makes the template that exists the wanted one.
func (r *Reconciler) repair(ctx context.Context, have, want *resourceapi.ResourceClaimTemplate) error {
	switch compare(have, want) {
	case replace:
		logr.FromContextOrDiscard(ctx).Info("Replacing a template that is not what its name says", "template", client.ObjectKeyFromObject(have))
		if err := r.Client.Delete(ctx, have, client.Preconditions{UID: &have.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting template %s, which is not what its name says: %w", have.Name, err)
		}
		return r.create(ctx, want)
	case mark:
		marked := have.DeepCopy()
		marked.Labels = merged(have.Labels, want.Labels)
		marked.Annotations = merged(have.Annotations, want.Annotations)
		if err := r.Client.Update(ctx, marked); err != nil {
			return fmt.Errorf("labelling template %s: %w", have.Name, err)
		}
	case keep:
	}
	return nil
}

func merged(have, want map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, have)
	maps.Copy(all, want)
	return all
}

// retire removes the template when no pod has referred to it for long enough. The cache may lag behind, so the API server
// has the last word on whether there is a pod.
func (r *Reconciler) retire(ctx context.Context, key types.NamespacedName, hash string) (reconcile.Result, error) {
	have := &resourceapi.ResourceClaimTemplate{}
	if err := r.Client.Get(ctx, key, have); err != nil {
		if apierrors.IsNotFound(err) {
			r.idle.forget(key)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("reading template %s: %w", key.Name, err)
	}
	if have.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue || !have.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	now := r.Clock.Now()
	if left := unusedFor - now.Sub(r.idle.start(key, now)); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	pods, err := podsOf(ctx, r.Live, key.Namespace, hash, client.Limit(1))
	if err != nil {
		return reconcile.Result{}, err
	}
	r.idle.forget(key)
	if len(pods) > 0 {
		// The pod's own event, once the cache has it, brings the template back into use.
		return reconcile.Result{RequeueAfter: unusedFor}, nil
	}
	preconditions := client.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion}
	if err := r.Client.Delete(ctx, have, preconditions); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("deleting template %s, which no pod uses: %w", key.Name, err)
	}
	return reconcile.Result{}, nil
}
