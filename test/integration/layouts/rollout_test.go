// SPDX-License-Identifier: Apache-2.0

package layouts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestALayoutIsMadeAndServesItsProfiles(t *testing.T) {
	s := newScene(t, "serves", 1)
	s.pool(builders.MakePool("serves").Static("1g.10gb", 7))
	if got := s.instances("1g.10gb"); !slices.Equal(got, []int{7}) {
		t.Fatalf("want seven instances, got %v", got)
	}
	var pods []*corev1.Pod
	for i := range 7 {
		pods = append(pods, s.pod(fmt.Sprintf("p%d", i), "9Gi"))
	}
	s.running(pods...)
	if device := s.device(pods[0]); !strings.HasPrefix(device, "gpu-0-mig-1g10gb-") {
		t.Errorf("want an instance of the layout, got %s", device)
	}
	s.remove(pods[0])
	if got := s.instances("1g.10gb"); !slices.Equal(got, []int{7}) {
		t.Errorf("an instance of the layout went with its tenant: %v are left", got)
	}
}

func TestAChangeRollsOutGPUByGPUAndNamesWhoIsInTheWay(t *testing.T) {
	s := newScene(t, "rolls", 2)
	s.pool(builders.MakePool("rolls").Static("3g.40gb", 2))
	tenant := s.pod("tenant", "20Gi")
	s.running(tenant)
	held := s.device(tenant)

	s.layout("1g.10gb", 7)
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked,
		"1 of 2 GPUs are as wanted", "held by rolls/tenant")
	s.running(tenant)
	if s.device(tenant) != held {
		t.Error("the tenant holds another device")
	}
	sevenths := s.instances("1g.10gb")
	slices.Sort(sevenths)
	if !slices.Equal(sevenths, []int{0, 7}) {
		t.Errorf("want the empty GPU alone divided anew, got %v", sevenths)
	}

	s.remove(tenant)
	s.rolledOut()
	if got := s.instances("1g.10gb"); !slices.Equal(got, []int{7, 7}) {
		t.Errorf("want all GPUs divided anew, got %v", got)
	}
}

func TestWhatCanStayStaysWithItsTenant(t *testing.T) {
	s := newScene(t, "stays", 1)
	s.pool(builders.MakePool("stays").Static("3g.40gb", 2))
	tenant := s.pod("tenant", "20Gi")
	s.running(tenant)

	s.edit(func(spec *v1alpha1.GPUPoolSpec) {
		spec.Partitioning.MIG.Layouts[0].Instances = []v1alpha1.MIGCount{{Profile: "3g.40gb", Count: 1}, {Profile: "1g.10gb", Count: 3}}
	})
	s.rolledOut()
	s.running(tenant)
	if large, small := s.instances("3g.40gb"), s.instances("1g.10gb"); large[0] != 1 || small[0] != 3 {
		t.Errorf("want one large instance and three small ones, got %v and %v", large, small)
	}
}

func TestTenantsAreEvictedAsTheirBudgetAllows(t *testing.T) {
	s := newScene(t, "evicts", 1)
	s.pool(builders.MakePool("evicts").Static("3g.40gb", 2).Rollout("1", v1alpha1.DrainEvict, 1))
	tenant := s.pod("tenant", "20Gi")
	s.running(tenant)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "evicts", Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "tenant"}},
		},
	}
	s.create(budget)

	s.layout("1g.10gb", 7)
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked, "PodDisruptionBudget", "evicts/tenant")
	s.running(tenant)
	if err := cluster.Client.Delete(s.Context(), budget); err != nil {
		t.Fatal(err)
	}
	s.gone(tenant)
	s.rolledOut()
}

func TestALayoutThatTheBoardCannotHoldChangesNothing(t *testing.T) {
	s := newScene(t, "refused", 1)
	s.pool(builders.MakePool("refused").Static("3g.40gb", 2))
	s.layout("3g.40gb", 3)
	s.condition(v1alpha1.PoolLayoutInvalid, metav1.ConditionTrue, v1alpha1.ReasonLayoutImpossible, "what fits: 2 × 3g.40gb")
	if got := s.instances("3g.40gb"); !slices.Equal(got, []int{2}) {
		t.Errorf("the GPU does not stay as it was: %v", got)
	}
	s.running(s.pod("tenant", "20Gi"))
	s.layout("1g.10gb", 2)
	s.condition(v1alpha1.PoolLayoutInvalid, metav1.ConditionFalse, v1alpha1.ReasonLayoutsPossible)
}

func TestAnotherStrategyWaitsForTheTenants(t *testing.T) {
	s := newScene(t, "strategy", 1)
	s.pool(builders.MakePool("strategy").MIG())
	tenant := s.pod("tenant", "9Gi")
	s.running(tenant)
	s.layout("3g.40gb", 2)
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked, "held by strategy/tenant")
	s.remove(tenant)
	s.rolledOut()
	if got := s.instances("3g.40gb"); !slices.Equal(got, []int{2}) {
		t.Errorf("want the layout made, got %v", got)
	}
	s.edit(func(spec *v1alpha1.GPUPoolSpec) {
		spec.Partitioning = v1alpha1.Partitioning{Type: v1alpha1.PartitioningMIG, MIG: &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGDynamic}}
	})
	s.rolledOut()
	s.running(s.pod("again", "9Gi"))
}

func TestAnExcludedGPUTakesNobodyNew(t *testing.T) {
	s := newScene(t, "excluded", 2)
	s.pool(builders.MakePool("excluded").Static("7g.80gb", 1))
	tenant := s.pod("tenant", "60Gi")
	s.running(tenant)
	minor := int32(0)
	if strings.HasPrefix(s.device(tenant), "gpu-1") {
		minor = 1
	}
	uuid := s.uuid(minor)
	s.edit(func(spec *v1alpha1.GPUPoolSpec) { spec.Excluded = []v1alpha1.ExcludedGPU{{UUID: uuid, Reason: "fan"}} })
	s.condition(v1alpha1.PoolExcluding, metav1.ConditionTrue, v1alpha1.ReasonTenantsRemain, "excluded/tenant")
	other := s.pod("other", "60Gi")
	s.running(other)
	if s.device(other) == s.device(tenant) {
		t.Error("two tenants hold one device")
	}
	s.remove(tenant)
	s.condition(v1alpha1.PoolExcluding, metav1.ConditionTrue, v1alpha1.ReasonGPUsExcluded)
	third := s.pod("third", "60Gi")
	s.edit(func(spec *v1alpha1.GPUPoolSpec) { spec.Excluded = nil })
	s.running(third)
}

func TestInstancesOfALayoutAreShared(t *testing.T) {
	s := newScene(t, "shared", 1)
	s.pool(builders.MakePool("shared").Static("3g.40gb", 2).Mode(v1alpha1.SharingSoftware))
	var pods []*corev1.Pod
	for i := range 6 {
		pods = append(pods, s.pod(fmt.Sprintf("p%d", i), "12Gi"))
	}
	s.running(pods...)
	count := map[string]int{}
	for _, p := range pods {
		count[s.device(p)]++
	}
	if len(count) != 2 {
		t.Errorf("want six shares on two instances, got %v", count)
	}
}

func TestAScheduleSwitchesTheLayout(t *testing.T) {
	s := newScene(t, "night", 1)
	begins := time.Now().UTC().Add(90 * time.Second).Truncate(time.Minute).Add(time.Minute)
	pool := builders.MakePool("night").Static("1g.10gb", 7)
	s.pool(pool)
	s.edit(func(spec *v1alpha1.GPUPoolSpec) {
		spec.TimeZone = "UTC"
		spec.Schedules = []v1alpha1.Schedule{{
			Name: "night", Start: begins.Format("15:04"), End: begins.Add(12 * time.Hour).Format("15:04"), LeadSeconds: ptr.To[int32](3600),
			Override: v1alpha1.ScheduleOverride{Partitioning: v1alpha1.PartitioningOverride{MIG: v1alpha1.MIGOverride{
				Layouts: []v1alpha1.MIGLayout{{Name: "whole", Instances: []v1alpha1.MIGCount{{Profile: "7g.80gb", Count: 1}}}},
			}}},
		}}
	})
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonProgressing, "waits for "+begins.Format(time.RFC3339))
	if got := s.instances("1g.10gb"); !slices.Equal(got, []int{7}) {
		t.Errorf("the layout changed before its time: %v", got)
	}
	ctx, cancel := context.WithDeadline(s.Context(), begins)
	defer cancel()
	<-ctx.Done()
	s.wait("the GPU is whole", func(context.Context) (bool, error) { return s.instances("7g.80gb")[0] == 1, nil })
	s.rolledOut()
	s.running(s.pod("tenant", "60Gi"))
}

func TestAChangeThatFailsStopsAtOneGPU(t *testing.T) {
	s := newScene(t, "fails", 2)
	s.pool(builders.MakePool("fails").Static("3g.40gb", 2))
	fault := func(args ...string) {
		t.Helper()
		if _, err := cluster.FakeGPU(s.Context(), "fails", append([]string{"fault"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	fault("--call", "nvmlGpuInstanceCreateComputeInstance", "--return", "NVML_ERROR_UNKNOWN")
	s.layout("1g.10gb", 7)
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonChangeFailed, "0 of 2 GPUs are as wanted", "1 waiting")
	halves := s.instances("3g.40gb")
	slices.Sort(halves)
	if !slices.Equal(halves, []int{0, 2}) {
		t.Errorf("want one GPU left as it was, got %v", halves)
	}
	s.running(s.pod("tenant", "20Gi"))

	fault("--clear")
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked, "1 of 2 GPUs are as wanted", "fails/tenant")
}

func TestARolloutGoesOnWithAnotherManager(t *testing.T) {
	s := newSceneAlone(t, "restart", 2) // the others would miss admission
	s.pool(builders.MakePool("restart").Static("3g.40gb", 2))
	tenant := s.pod("tenant", "20Gi")
	s.running(tenant)
	s.layout("1g.10gb", 7)
	s.condition(v1alpha1.PoolRollingOut, metav1.ConditionTrue, v1alpha1.ReasonBlocked, "restart/tenant")

	for _, do := range []func(context.Context, string) error{cluster.Stop, cluster.Start} {
		if err := do(s.Context(), "manager"); err != nil {
			t.Fatal(err)
		}
	}
	s.remove(tenant)
	s.rolledOut()
	if got := s.instances("1g.10gb"); !slices.Equal(got, []int{7, 7}) {
		t.Errorf("want all GPUs divided anew, got %v", got)
	}
}
