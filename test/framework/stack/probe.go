// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

// webhookAnswers asks for a pod without making one. A webhook that answers changes it or says what is wrong with it; one
// that does not is skipped, and the pod comes back as it was.
func (s *Stack) webhookAnswers(ctx context.Context) bool {
	pod := builders.MakePod("probe").Memory("1Gi").Obj()
	if err := s.Client.Create(ctx, pod, client.DryRunAll); err != nil {
		return strings.Contains(err.Error(), "admission webhook")
	}
	return pod.Annotations[v1alpha1.RequestAnnotation] != ""
}
