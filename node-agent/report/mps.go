// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// mpsServing is about the devices that MPS holds: the worst finding speaks for all.
func mpsServing(f Facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.NodeMPSServing, Status: metav1.ConditionTrue}
	switch {
	case f.MPSFailed != nil && len(f.MPS.Findings) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonMPSProgramMissing, f.MPSFailed.Error()
	case len(f.MPS.Findings) > 0:
		c.Status = metav1.ConditionFalse
		c.Reason, c.Message = f.MPS.Findings[0].Reason, f.MPS.Findings[0].Message
		if more := len(f.MPS.Findings) - 1; more > 0 {
			c.Message += fmt.Sprintf(" (and %d more findings)", more)
		}
	case f.MPS.Devices == 0:
		c.Reason, c.Message = v1alpha1.ReasonMPSNotUsed, "no claim has a device that is shared by MPS"
	default:
		c.Reason = v1alpha1.ReasonMPSServing
		c.Message = fmt.Sprintf("%d devices are shared by MPS, and every process on them is held by it", f.MPS.Devices)
	}
	return c
}
