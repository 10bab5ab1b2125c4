// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// comeback brings back the static layouts that a boot or a new driver has taken away. It needs no API server: pods that come
// back with the node find their instances. The loop, which does need it, goes on with what is left.
type comeback struct {
	divider  Divider
	hardware Looker
	preparer Preparer
	// foreign hears what somebody else had done to instances and was repaired, by the GPU's UUID.
	foreign func(repaired map[string]string)
	log     logr.Logger
}

// try divides once, for a bounded time, and says whether that was all.
func (b *comeback) try(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	look, err := b.hardware.Look(ctx)
	if reason, message := judgeLook(err); reason != "" {
		b.log.V(1).Info("Static layouts come back when NVML answers", "message", message)
		return false
	}
	result, err := b.divider.Divide(ctx, look)
	b.foreign(result.Foreign)
	for uuid, trouble := range result.Troubles {
		b.log.Info("A GPU is not divided as its layout says", "gpu", uuid, "reason", trouble.Reason, "message", trouble.Message)
	}
	if err == nil && result.Changed {
		err = b.preparer.Maintain(ctx)
	}
	if err != nil {
		b.log.Error(err, "Not all static layouts could be brought back; it is tried again")
	}
	return err == nil && !result.Changed
}

// until tries again and again until the layouts are back or the context ends.
func (b *comeback) until(ctx context.Context, c clock.Clock, pause time.Duration) {
	for !b.try(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-c.After(pause):
		}
	}
}
