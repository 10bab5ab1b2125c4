// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/otherhook"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

const (
	// rounds and each: every round measures each object so often under each way of admission, so that what else the
	// machine does falls on all of them.
	rounds = 6
	each   = 150
)

// withoutQuota ends the names of what is created in a namespace without a quota.
const withoutQuota = ", without a quota"

// way is who admits.
type way struct {
	name      string
	set       func(context.Context) error
	effective func(context.Context) bool
}

// BenchmarkCreation compares what it takes to create pods and claims without any webhook, with a webhook that does
// nothing, and with those of Sluice in a namespace with two quotas. Creations are dry runs: admission is all that differs.
func BenchmarkCreation(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	defer cancel()
	s := bringUp(ctx, b)
	s.namespace(ctx, "tenant",
		builders.MakeQuota("tenant", "devices").Hard(v1alpha1.QuotaGPUs, "100").PerClaim(v1alpha1.QuotaMemory, "2Gi", "1Gi", "40Gi").Obj(),
		builders.MakeQuota("tenant", "bytes").Hard(v1alpha1.QuotaMemory, "500Gi").Hard(v1alpha1.QuotaCompute, "800").Obj())
	s.namespace(ctx, "free")
	ways := s.ways(ctx)
	for b.Loop() {
		took := map[string]map[string][]time.Duration{}
		for range rounds {
			for _, w := range ways {
				s.settle(ctx, w)
				for _, object := range created() {
					name := object.GetAnnotations()["bench"]
					if took[name] == nil {
						took[name] = map[string][]time.Duration{}
					}
					took[name][w.name] = append(took[name][w.name], s.create(ctx, object)...)
				}
			}
		}
		for row := range strings.Lines(table(took, ways)) {
			b.Log(strings.TrimSpace(row))
		}
	}
	b.ReportMetric(0, "ns/op")
}

// created is what is created, named in an annotation.
func created() []client.Object {
	named := func(object client.Object, name string) client.Object {
		object.SetNamespace("tenant")
		if strings.HasSuffix(name, withoutQuota) {
			object.SetNamespace("free")
		}
		object.SetAnnotations(map[string]string{"bench": name})
		return object
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: pool + ".sluice.dev",
		Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: resource.MustParse("2Gi"),
		}},
	}}}
	return []client.Object{
		named(builders.MakePod("plain").Obj(), "a pod without a GPU"),
		named(builders.MakePod("share").Memory("2Gi").Compute("10").Obj(), "a pod with limits"),
		named(builders.MakePod("share").Memory("2Gi").Compute("10").Obj(), "a pod with limits"+withoutQuota),
		named(claim, "a claim"),
	}
}

func (b bench) create(ctx context.Context, object client.Object) []time.Duration {
	b.Helper()
	var took []time.Duration
	for range each {
		fresh, _ := object.DeepCopyObject().(client.Object)
		begin := time.Now()
		if err := b.admin.Create(ctx, fresh, client.DryRunAll); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	return took
}

// ways are the three ways; each takes the others away first.
func (b bench) ways(ctx context.Context) []way {
	b.Helper()
	pods, quotas := &registration.MutatingWebhookConfiguration{}, &registration.ValidatingWebhookConfiguration{}
	for name, object := range map[string]client.Object{"sluice-webhook": pods, "sluice-quota": quotas} {
		if err := b.admin.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			b.Fatal(err)
		}
	}
	var idle *otherhook.Hook
	away := func(ctx context.Context) error {
		if idle != nil {
			if err := idle.Stop(ctx); err != nil {
				return err
			}
			idle = nil
		}
		for _, object := range []client.Object{pods.DeepCopy(), quotas.DeepCopy()} {
			if err := client.IgnoreNotFound(b.admin.Delete(ctx, object)); err != nil {
				return fmt.Errorf("taking a webhook away: %w", err)
			}
		}
		return nil
	}
	var calls atomic.Int64
	// called says whether a creation goes to the idle webhook.
	called := func(ctx context.Context) (idle, rewritten bool) {
		before := calls.Load()
		rewritten = b.rewritten(ctx)
		return calls.Load() > before, rewritten
	}
	return []way{
		{name: "no webhook", set: away, effective: func(ctx context.Context) bool {
			idle, rewritten := called(ctx)
			return !idle && !rewritten
		}},
		{name: "a webhook that does nothing", set: func(ctx context.Context) error {
			if err := away(ctx); err != nil {
				return err
			}
			var err error
			idle, err = otherhook.Creation(ctx, b.admin, "idle", func(context.Context, *admissionv1.AdmissionRequest) error {
				calls.Add(1)
				return nil
			})
			return err
		}, effective: func(ctx context.Context) bool {
			idle, rewritten := called(ctx)
			return idle && !rewritten
		}},
		{name: "Sluice", set: func(ctx context.Context) error {
			if err := away(ctx); err != nil {
				return err
			}
			for _, object := range []client.Object{pods.DeepCopy(), quotas.DeepCopy()} {
				object.SetResourceVersion("")
				object.SetUID("")
				if err := b.admin.Create(ctx, object); err != nil {
					return fmt.Errorf("bringing a webhook back: %w", err)
				}
			}
			return nil
		}, effective: b.rewritten},
	}
}

// rewritten says whether Sluice admits pods at the moment.
func (b bench) rewritten(ctx context.Context) bool {
	pod := builders.MakePod("probe").Namespace("tenant").Memory("2Gi").Obj()
	if err := b.admin.Create(ctx, pod, client.DryRunAll); err != nil {
		return false
	}
	return pod.Annotations[v1alpha1.RequestAnnotation] != ""
}

// settle sets a way and waits until the API server goes it, ten times in a row.
func (b bench) settle(ctx context.Context, w way) {
	b.Helper()
	if err := w.set(ctx); err != nil {
		b.Fatal(err)
	}
	inARow := 0
	err := stack.Poll(ctx, "the API server admits with "+w.name, func(ctx context.Context) (bool, error) {
		if w.effective(ctx) {
			inARow++
		} else {
			inARow = 0
		}
		return inARow >= 10, nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

func table(took map[string]map[string][]time.Duration, ways []way) string {
	rows := []string{"| created | by | p50 | mean | p99 | mean, against a webhook that does nothing |"}
	for _, object := range created() {
		name := object.GetAnnotations()["bench"]
		idle := sorted(took[name][ways[1].name]).mean()
		for _, w := range ways {
			d := sorted(took[name][w.name])
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %.2f |", name, w.name,
				milliseconds(d.percentile(0.5)), milliseconds(d.mean()), milliseconds(d.percentile(0.99)), float64(d.mean())/float64(idle)))
		}
	}
	return strings.Join(rows, "\n")
}
