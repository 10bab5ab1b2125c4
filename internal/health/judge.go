// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Verdict says how a GPU is.
type Verdict struct {
	State v1alpha1.HealthState
	// Reason is one of the API's, Message a sentence; "" where nothing is wrong.
	Reason, Message string
	// XID is the number of the error report; 0 where there is none.
	XID int32
	// Forget is true where the GPU has been lost for so long that it need not be offered any more.
	Forget bool
}

// Sick is true where the GPU takes nothing new.
func (v Verdict) Sick() bool {
	return v.State == v1alpha1.HealthSuspect || v.State == v1alpha1.HealthLost
}

// finding looks at one thing that can be wrong; nil where it is not.
type finding func(c Course, uuid string, now time.Time, rules Rules) *Verdict

// Judge asks for everything that can be wrong, the worst first; the first that is speaks for the GPU.
func (c Course) Judge(uuid string, now time.Time, rules Rules) Verdict {
	for _, find := range []finding{gone, hangs, noSpareRows, recoveryAsked, erred, oldErrors, rowsPending, braked} {
		if v := find(c, uuid, now, rules); v != nil {
			return *v
		}
	}
	return Verdict{State: v1alpha1.HealthHealthy, Reason: v1alpha1.HealthReasonHealthy}
}

func suspect(reason, message string) *Verdict {
	return &Verdict{State: v1alpha1.HealthSuspect, Reason: reason, Message: message}
}

// gone: the driver has lost the GPU. Until that has lasted it may be a reset, unless the driver has said what it is.
func gone(c Course, _ string, now time.Time, rules Rules) *Verdict {
	if c.reach != Gone {
		return nil
	}
	v := suspect(v1alpha1.HealthReasonOffBus, "the driver does not reach the GPU; it is lost if that lasts")
	said := c.errors > 0 && ClassOf(c.xid) == OffBus
	if since := now.Sub(c.reachSince); since >= rules.LostAfter || said || c.wasLost {
		v.State = v1alpha1.HealthLost
		v.Message = "the GPU has fallen off the bus: what ran on it is lost; boot the node, and look at the hardware if it comes again"
		v.Forget = since >= rules.ForgetAfter
	}
	if said {
		v.XID = int32(c.xid)
	}
	return v
}

func hangs(c Course, uuid string, _ time.Time, _ Rules) *Verdict {
	if c.reach != Hangs {
		return nil
	}
	return suspect(v1alpha1.HealthReasonNVMLHangs,
		fmt.Sprintf("calls of the driver about the GPU do not return; if that lasts, look at `nvidia-smi -q -i %s` and the kernel's log", uuid))
}

func noSpareRows(c Course, _ string, _ time.Time, _ Rules) *Verdict {
	if !c.vitals.RemapFailed {
		return nil
	}
	return suspect(v1alpha1.HealthReasonRowRemapFailed, "bad memory could not be replaced, there are no spare rows left: have the board replaced")
}

func recoveryAsked(c Course, uuid string, now time.Time, rules Rules) *Verdict {
	if !c.vitals.Recovery.asks() {
		return nil
	}
	v := suspect(v1alpha1.HealthReasonRecoveryNeeded, wanted(c.vitals.Recovery, uuid))
	if c.errors > 0 && c.xid != 0 && now.Sub(c.errorAt) < rules.QuietMost {
		v.XID = int32(c.xid)
		v.Message = Describe(c.xid) + ": " + v.Message
	}
	return v
}

func wanted(r Recovery, uuid string) string {
	switch r {
	case RecoveryReset:
		return fmt.Sprintf("the driver asks for a reset of the GPU: when nothing uses it, run `nvidia-smi -i %s --gpu-reset` on the node", uuid)
	case RecoveryReboot:
		return "the driver asks for a reboot of the node"
	case RecoveryDrain:
		return "the driver asks that the GPU's traffic to other GPUs ends: stop what uses it"
	default:
		return "the driver asks that the node's IMEX domain is set up again"
	}
}

// erred: the hardware had an error not long ago.
func erred(c Course, _ string, now time.Time, rules Rules) *Verdict {
	if !c.suffers(now, rules) {
		return nil
	}
	if c.xid == 0 {
		return suspect(v1alpha1.HealthReasonECC, "memory had errors that could not be corrected")
	}
	v := suspect(v1alpha1.HealthReasonXID, "the driver reported "+Describe(c.xid))
	v.XID = int32(c.xid)
	return v
}

// oldErrors: a board that cannot replace its bad memory keeps it until it is reset.
func oldErrors(c Course, _ string, _ time.Time, _ Rules) *Verdict {
	if c.vitals.Remaps || c.vitals.Uncorrected == 0 {
		return nil
	}
	return suspect(v1alpha1.HealthReasonECC,
		fmt.Sprintf("memory had %d errors that could not be corrected since the GPU's last reset", c.vitals.Uncorrected))
}

func rowsPending(c Course, uuid string, _ time.Time, _ Rules) *Verdict {
	if !c.vitals.RemapPending {
		return nil
	}
	return suspect(v1alpha1.HealthReasonRowRemapPending, fmt.Sprintf(
		"bad memory is replaced at the GPU's next reset: when nothing uses it, run `nvidia-smi -i %s --gpu-reset` on the node", uuid))
}

// braked: a GPU that is slowed down is reported, and takes nothing new only where that lasts.
func braked(c Course, _ string, now time.Time, rules Rules) *Verdict {
	if c.brakeSince.IsZero() {
		return nil
	}
	v := suspect(v1alpha1.HealthReasonThermalBrake, "the hardware slows the GPU down because it is too hot: look at its cooling")
	if !c.vitals.ThermalBrake {
		v = suspect(v1alpha1.HealthReasonPowerBrake, "the power supply has the hardware slow the GPU down: look at the node's power")
	}
	if now.Sub(c.brakeSince) < rules.LastingBrake {
		v.State = v1alpha1.HealthHealthy
	}
	return v
}
