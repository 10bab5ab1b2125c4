// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// APICluster is the real API server: what concerns this node is watched, the rest is asked for.
type APICluster struct {
	// NodeName is this node's.
	NodeName string
	// Reader reads GPUNode and ResourceSlices, from a cache of this node's in production.
	Reader client.Reader
	// Direct reads the Node and claims and writes.
	Direct client.Client

	watched cache.Cache
}

// NewAPICluster makes the clients. It does not talk to the API server yet, which may be away.
func NewAPICluster(config *rest.Config, nodeName string) (*APICluster, error) {
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	watched, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.GPUNode{}:          {Field: fields.OneTermEqualSelector("metadata.name", nodeName)},
			&resourceapi.ResourceSlice{}: {Field: fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, nodeName)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	return &APICluster{NodeName: nodeName, Reader: watched, Direct: direct, watched: watched}, nil
}

// kinds are those the agent deals with. Naming them spares it the discovery, which fails while the API server is away.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, resourceapi.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, fmt.Errorf("registering the API types: %w", err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("GPUNode"), meta.RESTScopeRoot)
	mapper.Add(resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"), meta.RESTScopeRoot)
	mapper.Add(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), meta.RESTScopeNamespace)
	return scheme, mapper, nil
}

// Watch calls changed at every change of what is watched, until the context ends. It returns once everything has been
// read for the first time, however long the API server is away.
func (c *APICluster) Watch(ctx context.Context, changed func()) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
	for _, object := range []client.Object{&v1alpha1.GPUNode{}, &resourceapi.ResourceSlice{}} {
		informer, err := c.watched.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	go func() {
		// It ends with the context; an error before that would show as a cache that never fills.
		_ = c.watched.Start(ctx)
	}()
	if !c.watched.WaitForCacheSync(ctx) {
		return fmt.Errorf("reading the node's objects: %w", context.Cause(ctx))
	}
	return nil
}

// reader is the cache, or the API server itself.
func (c *APICluster) reader(fresh bool) client.Reader {
	if fresh {
		return c.Direct
	}
	return c.Reader
}

// GPUNode reads the node's GPUNode; nil where there is none.
func (c *APICluster) GPUNode(ctx context.Context, fresh bool) (*v1alpha1.GPUNode, error) {
	n := &v1alpha1.GPUNode{}
	if err := c.reader(fresh).Get(ctx, client.ObjectKey{Name: c.NodeName}, n); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading GPUNode %s: %w", c.NodeName, err)
	}
	return n, nil
}

// CreateGPUNode makes the node's GPUNode, which is deleted with the Node.
func (c *APICluster) CreateGPUNode(ctx context.Context, owner *corev1.Node) error {
	n := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{
		Name: c.NodeName,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: owner.Name, UID: owner.UID,
		}},
	}}
	if err := c.Direct.Create(ctx, n); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating GPUNode %s: %w", c.NodeName, err)
	}
	return nil
}

// UpdateStatus writes the status of a GPUNode.
func (c *APICluster) UpdateStatus(ctx context.Context, n *v1alpha1.GPUNode) error {
	if err := c.Direct.Status().Update(ctx, n); err != nil {
		return fmt.Errorf("updating the status of GPUNode %s: %w", n.Name, err)
	}
	return nil
}

// Node reads this node.
func (c *APICluster) Node(ctx context.Context) (*corev1.Node, error) {
	n := &corev1.Node{}
	if err := c.Direct.Get(ctx, client.ObjectKey{Name: c.NodeName}, n); err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", c.NodeName, err)
	}
	return n, nil
}

// Slices are the node's ResourceSlices, of every driver.
func (c *APICluster) Slices(ctx context.Context, fresh bool) ([]resourceapi.ResourceSlice, error) {
	list := &resourceapi.ResourceSliceList{}
	var ofNode []client.ListOption
	if fresh { // the cache holds no others
		ofNode = append(ofNode, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: c.NodeName})
	}
	if err := c.reader(fresh).List(ctx, list, ofNode...); err != nil {
		return nil, fmt.Errorf("listing the ResourceSlices of node %s: %w", c.NodeName, err)
	}
	return list.Items, nil
}

// Get reads a claim; nil where there is none.
func (c *APICluster) Get(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	claim := &resourceapi.ResourceClaim{}
	if err := c.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading claim %s/%s: %w", namespace, name, err)
	}
	return claim, nil
}

// User names a pod of this node that uses the claim and has not ended; "" where there is none.
func (c *APICluster) User(ctx context.Context, namespace, claim string) (string, error) {
	list := &corev1.PodList{}
	err := c.Direct.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": c.NodeName})
	if err != nil {
		return "", fmt.Errorf("listing the pods of namespace %s on this node: %w", namespace, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !ended && slices.Contains(claimsOf(pod), claim) {
			return namespace + "/" + pod.Name, nil
		}
	}
	return "", nil
}

// claimsOf are the names of the claims that a pod uses, however it came by them.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.ResourceClaims {
		names = append(names, ptr.Deref(c.ResourceClaimName, ""))
	}
	for _, c := range pod.Status.ResourceClaimStatuses {
		names = append(names, ptr.Deref(c.ResourceClaimName, ""))
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		names = append(names, e.ResourceClaimName)
	}
	return names
}
