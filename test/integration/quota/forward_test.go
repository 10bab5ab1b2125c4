// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// TestOneReplicaWritesForAll has the other replica send its charges to the leader, which knows it by its certificate.
func TestOneReplicaWritesForAll(t *testing.T) {
	s := newScene(t)
	s.quota(builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "8").Obj())
	var pods []*corev1.Pod
	for i := range 8 {
		pods = append(pods, limits(fmt.Sprintf("pod-%d", i), "1Gi"))
	}
	for _, pod := range pods {
		s.create(pod)
	}
	s.scheduled(pods...)
	s.wait("the leader has taken charges of the other replica", func(ctx context.Context) (bool, error) {
		for replica := range 2 {
			if stack.ManagerName(replica) != cluster.Leader(ctx) {
				continue
			}
			taken, err := cluster.Metric(ctx, replica, `controller_runtime_webhook_requests_total{code="200",webhook="/charge"}`)
			return err == nil && taken != "0", nil
		}
		return false, nil
	})
}
