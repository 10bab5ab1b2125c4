// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/crowd"
	"github.com/sluice-gpu/sluice/test/framework/storm"
	"github.com/sluice-gpu/sluice/test/framework/witness"
)

// What is asked for and what is allowed; test/bench/quota has the storm in full.
const (
	stormPods    = 120
	stormClients = 32
	stormAllowed = 17
	stormChurn   = 8 * time.Second
)

// TestAStorm has far more pods than the quota allows ask at once, through two replicas of the manager.
func TestAStorm(t *testing.T) {
	for _, d := range storm.Disturbances(cluster, admin) {
		t.Run("and "+d.Name, func(t *testing.T) {
			s := newScene(t)
			s.quota(builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, strconv.Itoa(stormAllowed)).Obj())
			if d.Before != nil {
				if err := d.Before(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if d.After != nil {
				defer func() {
					if err := d.After(context.WithoutCancel(t.Context())); err != nil {
						t.Error(err)
					}
				}()
			}
			weather := stormIn(stormAllowed, quota.Amounts{v1alpha1.QuotaGPUs: stormAllowed}, s.namespace)
			weather.Disturb = d.Amid
			brave(t, weather)
		})
	}
}

func TestAStormOverTwoQuotas(t *testing.T) {
	s := newScene(t)
	s.quota(
		builders.MakeQuota(s.namespace, "devices").Hard(v1alpha1.QuotaGPUs, "40").Obj(),
		builders.MakeQuota(s.namespace, "bytes").Hard(v1alpha1.QuotaMemory, strconv.Itoa(stormAllowed)+"Gi").Pools("shared").Obj(),
	)
	brave(t, stormIn(stormAllowed, quota.Amounts{v1alpha1.QuotaGPUs: 40, v1alpha1.QuotaMemory: stormAllowed << 30}, s.namespace))
}

// TestAStormWhileAQuotaMoves has a quota join a cohort and leave it again and again: another ledger judges each time.
func TestAStormWhileAQuotaMoves(t *testing.T) {
	s := newScene(t, "cohort", "research")
	q := builders.MakeQuota(s.namespace, "tenant").Pools("shared").Hard(v1alpha1.QuotaGPUs, strconv.Itoa(stormAllowed)).Obj()
	s.quota(q)
	weather := stormIn(stormAllowed, quota.Amounts{v1alpha1.QuotaGPUs: stormAllowed}, s.namespace)
	weather.Disturb = func(ctx context.Context) error {
		const moves = 8
		for i := range moves {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
				return fmt.Errorf("reading the quota: %w", err)
			}
			fresh := q.DeepCopy()
			fresh.Spec.Cohort, fresh.Spec.Guaranteed = "", nil
			if i%2 == 0 {
				fresh.Spec.Cohort, fresh.Spec.Guaranteed = "research", q.Spec.Hard
			}
			if err := admin.Patch(ctx, fresh, client.MergeFrom(q)); err != nil {
				return fmt.Errorf("moving the quota: %w", err)
			}
			timer := time.NewTimer(700 * time.Millisecond)
			select {
			case <-ctx.Done():
				timer.Stop()
				return fmt.Errorf("moving the quota: %w", ctx.Err())
			case <-timer.C:
			}
		}
		return nil
	}
	brave(t, weather)
}

func TestAStormOverACohort(t *testing.T) {
	const members = 8
	var namespaces []string
	for range members {
		s := newScene(t, "cohort", "research")
		s.quota(builders.MakeQuota(s.namespace, "tenant").Pools("shared").Cohort("research").
			Hard(v1alpha1.QuotaGPUs, "10").Guaranteed(v1alpha1.QuotaGPUs, "2").Obj())
		namespaces = append(namespaces, s.namespace)
	}
	brave(t, stormIn(2*members, quota.Amounts{v1alpha1.QuotaGPUs: 2 * members}, namespaces...))
}

// stormIn is a storm over namespaces that may hold so many shares together.
func stormIn(want int, most quota.Amounts, namespaces ...string) storm.Storm {
	return storm.Storm{
		Stack: cluster, Client: admin, Want: want, Churn: stormChurn,
		Crowd: crowd.Crowd{
			Client: admin, Namespaces: namespaces, Pool: "shared", Memory: "1Gi", Pods: stormPods, Clients: stormClients,
		},
		Bounds: []witness.Bound{{Namespaces: namespaces, Most: most}},
	}
}

func brave(t *testing.T, s storm.Storm) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	outcome, err := s.Run(ctx)
	for _, wrong := range outcome.Findings.Wrong {
		t.Error(wrong)
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d pods waited; settled after %s, ledgers after %s more; %d allocations, %d ledger writes, %d early refusals, %d failures; a status was low for %s",
		outcome.Waiting, outcome.Settled.Round(time.Millisecond), outcome.Drained.Round(time.Millisecond), outcome.Findings.Allocations,
		outcome.Findings.LedgerWrites, outcome.Report.Refused(), outcome.Report.Failed(), outcome.Findings.StatusLow.Round(time.Millisecond))
}
