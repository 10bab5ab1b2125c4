// SPDX-License-Identifier: Apache-2.0

// Package crowd is many clients that ask for GPUs at once and ask again when they are refused.
package crowd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/test/builders"
)

// patience is the longest that a client waits before it asks again.
const patience = time.Second

// Crowd is what is asked for.
type Crowd struct {
	// Client is the administrator's.
	Client client.Client
	// Namespaces take the pods in turn.
	Namespaces []string
	// Pool is where the shares come from.
	Pool string
	// Memory is the memory of each share.
	Memory string
	// Pods is how many there are; every other one has a claim that is written by hand.
	Pods int
	// Clients is how many ask at once.
	Clients int
}

// Report is what the clients saw. It can be read while they run.
type Report struct {
	created, refused, failed atomic.Int64

	again chan int
}

// Created is how many pods there are.
func (r *Report) Created() int { return int(r.created.Load()) }

// Refused is how often a client was told that it does not fit.
func (r *Report) Refused() int { return int(r.refused.Load()) }

// Failed counts answers other than that: the API server is away, or too slow.
func (r *Report) Failed() int { return int(r.failed.Load()) }

// Start lets the clients loose until the context ends. The channel is closed when they have ended.
func (c Crowd) Start(ctx context.Context) (*Report, <-chan struct{}) {
	report, done := &Report{again: make(chan int, c.Pods)}, make(chan struct{})
	var next atomic.Int64
	var clients sync.WaitGroup
	for range c.Clients {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < c.Pods; i = int(next.Add(1)) - 1 {
				c.insist(ctx, i, report)
			}
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case i := <-report.again:
					c.insist(ctx, i, report)
				}
			}
		})
	}
	go func() {
		clients.Wait()
		close(done)
	}()
	return report, done
}

// End deletes a pod of the crowd at once, and has a client ask for it again.
func (c Crowd) End(ctx context.Context, pod client.ObjectKey, report *Report) error {
	var i int
	if _, err := fmt.Sscanf(pod.Name, namePrefix+"%d", &i); err != nil {
		return nil //nolint:nilerr // it is somebody else's
	}
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := c.Client.Delete(ctx, object, client.GracePeriodSeconds(0)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("ending pod %s: %w", pod, err)
	}
	select {
	case report.again <- i:
	default: // it waits for a client already
	}
	return nil
}

// namePrefix begins the names of pods and claims.
const namePrefix = "crowd-"

// insist makes one pod, and its claim where it is written by hand, as often as it takes.
func (c Crowd) insist(ctx context.Context, i int, report *Report) {
	pod, claim := c.make(i)
	objects := []client.Object{pod}
	if claim != nil {
		objects = []client.Object{claim, pod}
	}
	for _, object := range objects {
		for ctx.Err() == nil {
			fresh, _ := object.DeepCopyObject().(client.Object)
			err := c.Client.Create(ctx, fresh)
			if err == nil || apierrors.IsAlreadyExists(err) {
				break
			}
			report.refuse(ctx, err)
			pause(ctx, time.Duration(rand.Int64N(int64(patience)))) //nolint:gosec // spreads clients
		}
	}
	if ctx.Err() == nil {
		report.created.Add(1)
	}
}

func (c Crowd) make(i int) (*corev1.Pod, *resourceapi.ResourceClaim) {
	name, namespace := fmt.Sprintf(namePrefix+"%d", i), c.Namespaces[i%len(c.Namespaces)]
	if (i/len(c.Namespaces))%2 == 0 {
		return builders.MakePod(name).Namespace(namespace).Pool(c.Pool).Memory(c.Memory).Obj(), nil
	}
	pod := builders.MakePod(name).Namespace(namespace).Obj()
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(name)}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return pod, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu",
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: classes.ForPool(c.Pool),
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					v1alpha1.CapacityMemory: resource.MustParse(c.Memory),
				}},
			},
		}}}},
	}
}

func (r *Report) refuse(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if apierrors.IsForbidden(err) {
		r.refused.Add(1)
		return
	}
	r.failed.Add(1)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
