// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// An H100-80GB has 79.25 GiB that CUDA can use; at 150 % it publishes 118.875.
func TestOvercommitGivesNeverMoreThanTheRatio(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "ratio", Pool: "ratio", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("ratio").Overcommit(150, 100).Obj())

	first := s.pod(builders.MakePod("first").Pool("ratio").Memory("59Gi").Obj())
	second := s.pod(builders.MakePod("second").Pool("ratio").Memory("59Gi").Obj())
	s.running(first, second)
	third := s.pod(builders.MakePod("third").Pool("ratio").Memory("1Gi").Obj())
	s.unschedulable(third)

	var sum int64
	for _, r := range append(s.results(first), s.results(second)...) {
		q := r.ConsumedCapacity[v1alpha1.CapacityMemory]
		sum += q.Value()
	}
	if want := int64(2 * 59 << 30); sum != want {
		t.Errorf("the two shares hold %d bytes, want %d", sum, want)
	}
	s.remove(first)
	s.running(third)
}

func TestComputeIsCountedLikeMemory(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "compute", Pool: "compute", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("compute").Overcommit(100, 150).Obj())

	first := s.pod(builders.MakePod("first").Pool("compute").Memory("1Gi").Compute("100").Obj())
	second := s.pod(builders.MakePod("second").Pool("compute").Memory("1Gi").Compute("50").Obj())
	s.running(first, second)
	third := s.pod(builders.MakePod("third").Pool("compute").Memory("1Gi").Compute("1").Obj())
	s.unschedulable(third)
	besteffort := s.pod(builders.MakePod("best-effort").Pool("compute").Memory("1Gi").Obj())
	s.running(besteffort)
}

func TestOneClaimNeverGetsMoreThanTheGPUHas(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "physical", Pool: "physical", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("physical").Overcommit(200, 100).Obj())

	pod := builders.MakePod("large").Pool("physical").Memory("80Gi").Obj()
	pod.Namespace = s.namespace
	err := cluster.Client.Create(s.Context(), pod)
	if err == nil {
		t.Fatal("80Gi of an 79.25 GiB GPU was admitted")
	}
	if !contains(err.Error(), "79.25Gi", "sluice.dev/gpu-memory") {
		t.Errorf("the refusal does not say what to write instead: %v", err)
	}
	// The scheduler holds the same line for claims that no webhook saw.
	s.create(claimTemplate(s.namespace, "native", "physical.sluice.dev", "80Gi"))
	s.unschedulable(s.pod(builders.MakePod("native").Claim("native").Obj()))
}
