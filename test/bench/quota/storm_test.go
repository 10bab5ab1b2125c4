// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/crowd"
	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/storm"
	"github.com/sluice-gpu/sluice/test/framework/witness"
)

const (
	pods    = 1000
	clients = 32
	allowed = 137
	churn   = 15 * time.Second
	members = 8
)

// BenchmarkStorms has 1,000 pods ask at once for what 137 may have, once with each disturbance, once over two quotas and
// once over a cohort, and prints what came of it. It fails where a quota was not held at any instant.
func BenchmarkStorms(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	defer cancel()
	s := bringUp(ctx, b)
	for b.Loop() {
		rows := []string{"| storm | pods before | allocations | ledger writes | settled | ledgers drained | early refusals | other failures | status behind |"}
		for i, d := range storm.Disturbances(s.stack, s.admin) {
			name := fmt.Sprintf("tenant-%d", i)
			s.namespace(ctx, name, builders.MakeQuota(name, "tenant").Hard(v1alpha1.QuotaGPUs, strconv.Itoa(allowed)).Obj())
			rows = append(rows, s.storm(ctx, d, nil, quota.Amounts{v1alpha1.QuotaGPUs: allowed}, name))
			b.Log(rows[len(rows)-1])
		}
		rows = append(rows, s.twoQuotas(ctx), s.cohort(ctx))
		b.Log("\n" + strings.Join(rows, "\n"))
	}
	b.ReportMetric(0, "ns/op")
}

func (b bench) twoQuotas(ctx context.Context) string {
	b.Helper()
	b.namespace(ctx, "two",
		builders.MakeQuota("two", "devices").Hard(v1alpha1.QuotaGPUs, "300").Obj(),
		builders.MakeQuota("two", "bytes").Hard(v1alpha1.QuotaMemory, strconv.Itoa(allowed)+"Gi").Pools(pool).Obj())
	most := quota.Amounts{v1alpha1.QuotaGPUs: 300, v1alpha1.QuotaMemory: allowed << 30}
	return b.storm(ctx, storm.Disturbance{Name: "two quotas"}, nil, most, "two")
}

// cohort has eight namespaces lend to each other: in the end each has what is guaranteed to it, since all want more.
func (b bench) cohort(ctx context.Context) string {
	b.Helper()
	var names []string
	each := map[string]int{}
	for i := range members {
		name := fmt.Sprintf("member-%d", i)
		guaranteed := allowed / members
		if i < allowed%members {
			guaranteed++
		}
		b.namespace(ctx, name, builders.MakeQuota(name, "tenant").Pools(pool).Cohort("research").
			Hard(v1alpha1.QuotaGPUs, strconv.Itoa(allowed)).Guaranteed(v1alpha1.QuotaGPUs, strconv.Itoa(guaranteed)).Obj())
		names, each[name] = append(names, name), guaranteed
	}
	return b.storm(ctx, storm.Disturbance{Name: "a cohort of eight"}, each, quota.Amounts{v1alpha1.QuotaGPUs: allowed}, names...)
}

// storm has one and returns its row.
func (b bench) storm(ctx context.Context, d storm.Disturbance, each map[string]int, most quota.Amounts, namespaces ...string) string {
	b.Helper()
	if d.Before != nil {
		if err := d.Before(ctx); err != nil {
			b.Fatal(err)
		}
	}
	running, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	outcome, err := storm.Storm{
		Stack: b.stack, Client: b.admin, Want: allowed, Each: each, Churn: churn, Disturb: d.Amid,
		Crowd: crowd.Crowd{
			Client: b.admin, Namespaces: namespaces, Pool: pool, Memory: "1Gi", Pods: pods, Clients: clients,
		},
		Bounds: []witness.Bound{{Namespaces: namespaces, Most: most}},
	}.Run(running)
	for _, wrong := range outcome.Findings.Wrong {
		b.Errorf("%s: %s", d.Name, wrong)
	}
	if err != nil {
		b.Errorf("%s: %v", d.Name, err)
	}
	if d.After != nil {
		if err := d.After(ctx); err != nil {
			b.Error(err)
		}
	}
	b.clear(ctx, namespaces)
	return fmt.Sprintf("| %s | %d | %d | %d | %s | %s | %d | %d | %s |", d.Name, outcome.Waiting, outcome.Findings.Allocations,
		outcome.Findings.LedgerWrites, outcome.Settled.Round(10*time.Millisecond), outcome.Drained.Round(10*time.Millisecond),
		outcome.Report.Refused(), outcome.Report.Failed(), outcome.Findings.StatusLow.Round(10*time.Millisecond))
}

// clear ends everything, so that the next storm finds the devices free. The scheduler is away meanwhile: what it tries for
// the pods that wait would take most of the machine.
func (b bench) clear(ctx context.Context, namespaces []string) {
	b.Helper()
	if err := b.stack.Stop(ctx, "kube-scheduler"); err != nil {
		b.Fatal(err)
	}
	for _, name := range namespaces {
		var pods corev1.PodList
		if err := b.admin.List(ctx, &pods, client.InNamespace(name)); err != nil {
			b.Fatal(err)
		}
		var claims resourceapi.ResourceClaimList
		if err := b.admin.List(ctx, &claims, client.InNamespace(name)); err != nil {
			b.Fatal(err)
		}
		var group errgroup.Group
		group.SetLimit(writers)
		for i := range pods.Items {
			group.Go(func() error { return b.end(ctx, &pods.Items[i]) })
		}
		for i := range claims.Items {
			group.Go(func() error { return b.end(ctx, &claims.Items[i]) })
		}
		if err := group.Wait(); err != nil {
			b.Error(err)
		}
	}
	err := stack.Poll(ctx, "nothing is allocated", func(ctx context.Context) (bool, error) {
		for _, name := range namespaces {
			var claims resourceapi.ResourceClaimList
			if err := b.admin.List(ctx, &claims, client.InNamespace(name)); err != nil || len(claims.Items) > 0 {
				return false, err
			}
		}
		return true, nil
	})
	if err := errors.Join(err, b.stack.Start(ctx, "kube-scheduler")); err != nil {
		b.Error(err)
	}
}

func (b bench) end(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(b.admin.Delete(ctx, object, client.GracePeriodSeconds(0)))
}
