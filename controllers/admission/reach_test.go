// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestMayReach(t *testing.T) {
	network := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "network"}}
	network.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "net.example.com"`}}}
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "nic"},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: asksFor("network", "1Gi")},
	}
	e, _ := early(t, nil, network, template, claimNamed("nic", "network", "1Gi"), claimNamed("gpu", "shared.sluice.dev", "1Gi"))
	named := func(name string) corev1.PodResourceClaim {
		return corev1.PodResourceClaim{Name: "a", ResourceClaimName: &name}
	}
	gpu := using()
	gpu.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{name: "a claim of another driver does not", pod: using(named("nic"))},
		{name: "nor does a template of one", pod: using(corev1.PodResourceClaim{Name: "a", ResourceClaimTemplateName: ptr.To("nic")})},
		{name: "a claim of a class that may be Sluice's does", pod: using(named("nic"), named("gpu")), want: true},
		{name: "a claim that is not there yet may", pod: using(named("later")), want: true},
		{name: "a share does", pod: limited(t, "shared", 1024), want: true},
		{name: "an extended resource does", pod: gpu, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := e.MayReach(t.Context(), tc.pod, "team-a"); got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}
