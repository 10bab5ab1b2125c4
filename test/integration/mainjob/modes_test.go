// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/fakemps"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

func TestAnExclusiveGPUHasOneClaim(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "alone", Pool: "alone", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("alone").Mode(v1alpha1.SharingExclusive).Obj())
	whole := func(name string) *corev1.Pod {
		return builders.MakePod(name).Pool("alone").Limit(v1alpha1.ResourceGPU, "1").Obj()
	}

	first := s.pod(whole("first"))
	s.running(first)
	second := s.pod(whole("second"))
	s.unschedulable(second)
	// Nor in Kubernetes' own words, however little is asked.
	s.create(claimTemplate(s.namespace, "little", "alone.sluice.dev", "1Gi"))
	little := s.pod(builders.MakePod("little").Claim("little").Obj())
	s.unschedulable(little)
	s.remove(little) // else it may be given the GPU before the second
	s.remove(first)
	s.running(second)
}

func TestAGPUGivesAsManyShares(t *testing.T) {
	t.Parallel()
	for _, mode := range []v1alpha1.SharingMode{v1alpha1.SharingTimeSlicing, v1alpha1.SharingSoftware, v1alpha1.SharingMPS} {
		t.Run(string(mode), func(t *testing.T) {
			const most = 3
			s := newScene(t)
			name := "slots-" + map[v1alpha1.SharingMode]string{"TimeSlicing": "ts", "Software": "sw", "MPS": "mps"}[mode]
			s.node(stack.Node{Name: name, Pool: name, Board: "h100-80gb", GPUs: 1, Prepare: fakemps.InstallIn})
			s.pool(builders.MakePool(name).Mode(mode).MaxTenants(most).Obj())
			var pods []*corev1.Pod
			for i := range most {
				pods = append(pods, s.pod(builders.MakePod("tenant-"+strconv.Itoa(i)).Pool(name).Memory("1Gi").Obj()))
			}
			s.running(pods...)
			next := s.pod(builders.MakePod("next").Pool(name).Memory("1Gi").Obj())
			s.unschedulable(next)
			s.remove(pods[0])
			s.running(next)
		})
	}
}
