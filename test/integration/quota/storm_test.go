// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/crowd"
	"github.com/sluice-gpu/sluice/test/framework/otherhook"
	"github.com/sluice-gpu/sluice/test/framework/stack"
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
	for _, tc := range []struct {
		name    string
		disturb func(*testing.T) func(context.Context) error
	}{
		{name: "an undisturbed one"},
		{name: "the leading manager is killed in the middle", disturb: killLeader},
		{name: "the other manager is killed in the middle", disturb: killFollower},
		{name: "the API server goes away in the middle", disturb: restartAPIServer},
		{name: "another webhook is slow", disturb: slowHook},
		{name: "another webhook denies half", disturb: denyingHook},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			s.quota(builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, fmt.Sprint(stormAllowed)).Obj())
			weather := stormIn(stormAllowed, quota.Amounts{v1alpha1.QuotaGPUs: stormAllowed}, s.namespace)
			if tc.disturb != nil {
				weather.Disturb = tc.disturb(t)
			}
			brave(t, weather)
		})
	}
}

func TestAStormOverTwoQuotas(t *testing.T) {
	s := newScene(t)
	s.quota(
		builders.MakeQuota(s.namespace, "devices").Hard(v1alpha1.QuotaGPUs, "40").Obj(),
		builders.MakeQuota(s.namespace, "bytes").Hard(v1alpha1.QuotaMemory, fmt.Sprintf("%dGi", stormAllowed)).Pools("shared").Obj(),
	)
	brave(t, stormIn(stormAllowed, quota.Amounts{v1alpha1.QuotaGPUs: 40, v1alpha1.QuotaMemory: stormAllowed << 30}, s.namespace))
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

// killLeader kills the manager that leads while it charges. It comes back when the test ends.
func killLeader(t *testing.T) func(context.Context) error {
	t.Helper()
	return func(ctx context.Context) error {
		leader := cluster.Leader(ctx)
		if leader == "" {
			return errors.New("no manager leads")
		}
		return killManager(ctx, t, leader)
	}
}

func killFollower(t *testing.T) func(context.Context) error {
	t.Helper()
	return func(ctx context.Context) error {
		other := stack.ManagerName(0)
		if cluster.Leader(ctx) == other {
			other = stack.ManagerName(1)
		}
		return killManager(ctx, t, other)
	}
}

func killManager(ctx context.Context, t *testing.T, name string) error {
	t.Helper()
	t.Cleanup(func() {
		if err := cluster.Start(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return cluster.Kill(ctx, name)
}

func restartAPIServer(t *testing.T) func(context.Context) error {
	t.Helper()
	return func(ctx context.Context) error {
		return errors.Join(cluster.Stop(ctx, "kube-apiserver"), cluster.Start(ctx, "kube-apiserver"))
	}
}

// slowHook takes 8 seconds over each write of a claim's status: the verdict is old when the allocation is stored.
func slowHook(t *testing.T) func(context.Context) error {
	t.Helper()
	const slow = 8 * time.Second
	return hooked(t, "slow", func(ctx context.Context, _ *admissionv1.AdmissionRequest) error {
		timer := time.NewTimer(slow)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return nil
	})
}

// denyingHook denies every other write of a claim's status, after the quota has been charged.
func denyingHook(t *testing.T) func(context.Context) error {
	t.Helper()
	return hooked(t, "moody", func(context.Context, *admissionv1.AdmissionRequest) error {
		if rand.IntN(2) == 0 { //nolint:gosec // a mood
			return errors.New("not today")
		}
		return nil
	})
}

// hooked has somebody else's webhook from the start of the storm.
func hooked(t *testing.T, name string, answer otherhook.Answer) func(context.Context) error {
	t.Helper()
	hook, err := otherhook.Status(t.Context(), admin, name, answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hook.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return nil
}
