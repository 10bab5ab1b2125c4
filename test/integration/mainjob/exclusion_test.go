// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// load are pods of one kind that come and go without end.
type load struct {
	scene
	template string
	// ran counts those that did run.
	ran atomic.Int64
}

// run creates a pod, waits a while for it to run, and deletes it, until the context ends.
func (l *load) run(ctx context.Context, worker int) {
	const turn = 3 * time.Second
	for i := 0; ctx.Err() == nil; i++ {
		p := builders.MakePod(fmt.Sprintf("%s-%d-%d", l.template, worker, i)).Namespace(l.namespace).Claim(l.template).Obj()
		if err := cluster.Client.Create(ctx, p); err != nil {
			if ctx.Err() == nil {
				l.Errorf("create pod %s: %v", p.Name, err)
			}
			return
		}
		waiting, cancel := context.WithTimeout(ctx, turn)
		err := stack.Poll(waiting, "the pod runs", func(ctx context.Context) (bool, error) {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
			return p.Status.Phase == corev1.PodRunning, err
		})
		cancel()
		if err == nil {
			l.ran.Add(1)
		}
		l.end(p)
	}
}

// end deletes a pod and waits until it is gone.
func (l *load) end(p *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), patience)
	defer cancel()
	if err := cluster.Client.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
		l.Errorf("delete pod %s: %v", p.Name, err)
	}
	err := stack.Poll(ctx, "pod "+p.Name+" is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		l.Error(err)
	}
}

// neverBoth looks again and again whether a GPU is held as a whole and in instances at once, in the API and in the hardware.
func (s scene) neverBoth(ctx context.Context, node string) {
	for ctx.Err() == nil {
		before, err := holdings(ctx, node)
		if err != nil {
			continue // the test ends
		}
		shown, _ := cluster.FakeGPU(ctx, node, "show", "--json")
		after, err := holdings(ctx, node)
		if err != nil {
			continue
		}
		shares, instances := kinds(before)
		if shares > 0 && instances > 0 {
			s.Errorf("held at once are %v", before)
		}
		// A share that is there before and after the look was there with what the look has shown.
		if still, _ := kinds(after); shares > 0 && still > 0 && instances == 0 && strings.Contains(shown, `"MIG-`) {
			s.Errorf("shares are held, and the GPU has instances: %v, %v, %s", before, after, shown)
		}
	}
}

// kinds counts shares of whole GPUs and MIG instances.
func kinds(devices []string) (shares, instances int) {
	for _, device := range devices {
		if strings.Contains(device, "-mig-") {
			instances++
		} else {
			shares++
		}
	}
	return shares, instances
}

// TestSharesAndInstancesExcludeEachOtherUnderLoad has a pool go to MIG and back while pods of both kinds come and go.
func TestSharesAndInstancesExcludeEachOtherUnderLoad(t *testing.T) {
	const workers, changes = 3, 4
	s := newSceneAlone(t)
	const name = "excludes"
	s.node(stack.Node{Name: name, Pool: name, Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool(name).Obj())
	s.create(claimTemplate(s.namespace, "share", name+".sluice.dev", "2Gi"))
	instance := claimTemplate(s.namespace, "instance", "mig-1g.10gb.sluice.dev", "1Gi")
	instance.Spec.Spec.Devices.Requests[0].Exactly.Capacity = nil
	s.create(selecting(instance, fmt.Sprintf(`device.attributes["gpu.sluice.dev"].pool == %q`, name)))
	defer s.nothingAllocatedDisappears(name)()

	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	shares, instances := &load{scene: s, template: "share"}, &load{scene: s, template: "instance"}
	for worker := range workers {
		all.Go(func() { shares.run(ctx, worker) })
		all.Go(func() { instances.run(ctx, worker) })
	}
	all.Go(func() { s.neverBoth(ctx, name) })

	some := func(l *load) {
		begin := l.ran.Load()
		s.wait("pods with "+l.template+" run", func(context.Context) (bool, error) { return l.ran.Load() >= begin+workers, nil })
	}
	some(shares)
	for change := range changes {
		next, form := instances, builders.MakePool(name).MIG().Obj().Spec
		if change%2 == 1 {
			next, form = shares, builders.MakePool(name).Obj().Spec
		}
		s.edit(name, func(p *v1alpha1.GPUPool) {
			p.Spec.Partitioning, p.Spec.Sharing = form.Partitioning, form.Sharing
		})
		s.poolCondition(name, v1alpha1.PoolRollingOut, metav1.ConditionFalse, v1alpha1.ReasonRolledOut)
		some(next)
	}
	stop()
	all.Wait()
	s.unused(name)
	t.Logf("%d pods with a share and %d with an instance ran", shares.ran.Load(), instances.ran.Load())
}
