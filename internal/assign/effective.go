// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"fmt"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Override is a pool as it is while a schedule lasts: the fields of the override take the place of the spec's, and what
// makes no sense with the new partitioning is left out. The error says why the two make no sense together.
func Override(pool *v1alpha1.GPUPool, over v1alpha1.ScheduleOverride) (*v1alpha1.GPUPool, error) {
	merged := pool.DeepCopy()
	overridePartitioning(&merged.Spec.Partitioning, over.Partitioning)
	if o := over.Overcommit; o != (v1alpha1.OvercommitOverride{}) {
		if merged.Spec.Overcommit == nil {
			merged.Spec.Overcommit = &v1alpha1.Overcommit{MemoryPercent: noOvercommit, ComputePercent: noOvercommit}
		}
		if o.MemoryPercent != 0 {
			merged.Spec.Overcommit.MemoryPercent = o.MemoryPercent
		}
		if o.ComputePercent != 0 {
			merged.Spec.Overcommit.ComputePercent = o.ComputePercent
		}
	}
	return merged, contradiction(merged, over)
}

func overridePartitioning(p *v1alpha1.Partitioning, over v1alpha1.PartitioningOverride) {
	if over.Type != "" {
		p.Type = over.Type
	}
	if p.Type != v1alpha1.PartitioningMIG {
		p.MIG = nil
		return
	}
	if p.MIG == nil {
		p.MIG = &v1alpha1.MIGPartitioning{Strategy: v1alpha1.MIGDynamic}
	}
	mig := over.MIG.DeepCopy()
	if mig.Strategy != "" {
		p.MIG.Strategy = mig.Strategy
	}
	if len(mig.Layouts) > 0 {
		p.MIG.Layouts = mig.Layouts
	}
	if mig.KeepIdleSeconds != nil {
		p.MIG.KeepIdleSeconds = mig.KeepIdleSeconds
	}
	if p.MIG.Strategy == v1alpha1.MIGStatic {
		p.MIG.KeepIdleSeconds = nil
	} else {
		p.MIG.Layouts = nil
	}
}

// contradiction says why a merged pool makes no sense: the schema holds a spec and an override against its rules only one
// by one.
func contradiction(pool *v1alpha1.GPUPool, over v1alpha1.ScheduleOverride) error {
	mode := pool.SharingMode()
	static := Strategy(pool) == v1alpha1.MIGStatic
	switch {
	case static && len(pool.Spec.Partitioning.MIG.Layouts) == 0:
		return fmt.Errorf("strategy Static needs layouts, in spec or in the override")
	case len(over.Partitioning.MIG.Layouts) > 0 && !static:
		return fmt.Errorf("it has layouts, which are for partitioning.type MIG with strategy Static")
	case Strategy(pool) == v1alpha1.MIGDynamic && mode != v1alpha1.SharingExclusive:
		return fmt.Errorf("strategy Dynamic goes with sharing.mode Exclusive only, not with %s", mode)
	case static && mode == v1alpha1.SharingTimeSlicing:
		return fmt.Errorf("MIG instances are not shared by TimeSlicing")
	case over.Overcommit != (v1alpha1.OvercommitOverride{}) && mode == v1alpha1.SharingExclusive:
		return fmt.Errorf("it overcommits devices that are Exclusive")
	default:
		return nil
	}
}

// Excludes says whether a pool excludes a GPU, and why.
func Excludes(pool *v1alpha1.GPUPool, uuid string) (reason string, excluded bool) {
	for _, e := range pool.Spec.Excluded {
		if e.UUID == uuid {
			return e.Reason, true
		}
	}
	return "", false
}
