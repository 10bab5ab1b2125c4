// SPDX-License-Identifier: Apache-2.0

// Package kubelet is a minimal kubelet for simulated nodes: it registers DRA drivers, prepares the claims of the pods
// bound to its node through the drivers' real sockets, reports the pods as running without running them, and keeps the
// node's heartbeat. What a container runtime would do with the prepared CDI devices is written down, pod by pod.
package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// Options say what a kubelet serves and where it keeps its files.
type Options struct {
	// Node is the node's name.
	Node string
	// Client speaks as the node.
	Client kubernetes.Interface
	// Registry is the directory in which drivers announce themselves.
	Registry string
	// CDI is the directory of CDI specifications.
	CDI string
	// State is the directory of the checkpoint, the list of registered drivers and, below pods, the pods' records.
	State string
	// Log is where the kubelet reports to.
	Log *slog.Logger
	// Now is the clock.
	Now func() time.Time
}

const workers = 16

// DriversFile names the file, in the state directory, that lists the registered drivers: []Driver. It is there as long as
// a kubelet serves, or was killed.
const DriversFile = "drivers.json"

// Driver is a registered driver.
type Driver struct {
	// Name is the driver's name.
	Name string `json:"name"`
	// Since is when it registered last.
	Since time.Time `json:"since"`
}

type kubelet struct {
	Options

	registry *registry
	preparer *preparer
	pods     corelisters.PodLister
	queue    workqueue.TypedRateLimitingInterface[string]
	events   record.EventRecorder
	// deleted holds the UIDs of pods deleted for good, until the watch shows it.
	deleted sync.Map
}

// Run serves the node until the context ends.
func Run(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.recordDir(), 0o755); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	checkpoint, err := openCheckpoint(filepath.Join(o.State, "prepared-claims.json"))
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: o.Client.CoreV1().Events("")})

	k := &kubelet{
		Options: o,
		events:  broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: o.Node}),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](250*time.Millisecond, 10*time.Second)),
	}
	k.registry = &registry{dir: o.Registry, log: o.Log, now: o.Now, changed: k.driversChanged, retry: map[socketID]time.Time{}}
	k.preparer = &preparer{registry: k.registry, checkpoint: checkpoint}
	defer k.registry.close()
	return k.run(ctx)
}

func (k *kubelet) run(ctx context.Context) error {
	k.deleteSlices(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(k.Client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", k.Node).String()
	}))
	informer := factory.Core().V1().Pods()
	k.pods = informer.Lister()
	if _, err := informer.Informer().AddEventHandler(k.handler()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if err := writeJSON(filepath.Join(k.State, DriversFile), []Driver{}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	var all sync.WaitGroup
	all.Go(func() { k.heartbeat(ctx) })
	cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced)
	all.Go(func() { k.registry.run(ctx) })
	all.Go(func() { k.sweepForever(ctx) })
	for range workers {
		all.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	k.Log.Info("serving", "node", k.Node)
	<-ctx.Done()
	k.queue.ShutDown()
	all.Wait()
	factory.Shutdown()
	return nil
}

// deleteSlices removes the slices of the node's drivers, as the real kubelet does when it starts: they may describe
// devices of before a reboot. A driver publishes again once it is registered.
func (k *kubelet) deleteSlices(ctx context.Context) {
	selector := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", k.Node).String()}
	if err := k.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, selector); err != nil {
		k.Log.Warn("deleting the node's resource slices", "error", err)
	}
}

func (k *kubelet) handler() cache.ResourceEventHandlerFuncs {
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			k.queue.Add(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}
}

// driversChanged records who is registered, and lets pods that may have waited for a driver try again.
func (k *kubelet) driversChanged(drivers []Driver) {
	if err := writeJSON(filepath.Join(k.State, DriversFile), drivers); err != nil {
		k.Log.Error("recording the drivers", "error", err)
	}
	for _, pod := range k.list() {
		key := pod.Namespace + "/" + pod.Name
		k.queue.Forget(key)
		k.queue.Add(key)
	}
}

func (o Options) recordDir() string { return filepath.Join(o.State, "pods") }
