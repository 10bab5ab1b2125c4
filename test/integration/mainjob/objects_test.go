// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"context"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// claimTemplate is a tenant's own template, which admission never sees.
func claimTemplate(namespace, name, class, memory string) *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{
			Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
				Name: "gpu",
				Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
					Capacity: &resourceapi.CapacityRequirements{
						Requests: map[resourceapi.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(memory)},
					},
				},
			}}},
		}},
	}
}

// migMode waits until the agent reports the MIG mode of the node's first GPU.
func (s scene) migMode(node string, want v1alpha1.MIGModeState) {
	s.Helper()
	s.wait(fmt.Sprintf("MIG mode of node %s is %s", node, want), func(ctx context.Context) (bool, error) {
		var n v1alpha1.GPUNode
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return false, err
		}
		return len(n.Status.GPUs) > 0 && n.Status.GPUs[0].MIGMode == want, nil
	})
}

// contains says whether text has every part.
func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
