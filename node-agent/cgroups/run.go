// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// Period is the time between two looks at limits that have changed and containers that have ended.
const Period = time.Second

// Run follows changes until the context ends. Trouble is logged once, and once more when it is over.
func (k *Keeper) Run(ctx context.Context, c clock.WithTicker) {
	ticker := c.NewTicker(Period)
	defer ticker.Stop()
	trouble := ""
	for {
		text := ""
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		switch text {
		case trouble:
		case "":
			k.Log.Info("The driver's memory limits are as they should be again")
		default:
			k.Log.Info("Not all memory limits of the driver are as they should be; it is tried again", "err", text)
		}
		trouble = text
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Sync brings the driver's limits in line with shares and containers as they are now.
func (k *Keeper) Sync(ctx context.Context) error {
	record, err := k.Records.Limits()
	if err != nil {
		return fmt.Errorf("reading the record of limits: %w", err)
	}
	if len(record.Containers) == 0 && len(record.Set) == 0 {
		return nil
	}
	claims, err := k.Records.Claims()
	if err != nil {
		return fmt.Errorf("reading the prepared claims: %w", err)
	}
	failed, err := k.change(ctx, claims, func(*checkpoint.Limits) {})
	if err != nil {
		return err
	}
	return failed.all()
}

// Fallback is a claim that the library alone holds although the pool would have the driver do it.
type Fallback struct {
	Claim checkpoint.Claim
	// Message says why.
	Message string
}

// Fallbacks are the claims whose pods have not been told yet. They count as told from then on.
func (k *Keeper) Fallbacks(
	claims checkpoint.Claims, published checkpoint.Published, held map[string]v1alpha1.GPUMemoryLimits,
) ([]Fallback, error) {
	unlock, err := k.Records.LockLimits()
	if err != nil {
		return nil, fmt.Errorf("locking the record of limits: %w", err)
	}
	defer unlock()
	record, err := k.Records.Limits()
	if err != nil {
		return nil, fmt.Errorf("reading the record of limits: %w", err)
	}
	var found []Fallback
	told := slices.DeleteFunc(slices.Clone(record.Told), func(uid string) bool { return claims.Claims[uid].UID == "" })
	for _, claim := range claims.Sorted() {
		if claim.State != checkpoint.Prepared || slices.Contains(told, claim.UID) {
			continue
		}
		if message := fellBack(claim, published, held, record.FellBack); message != "" {
			found = append(found, Fallback{Claim: claim, Message: message})
			told = append(told, claim.UID)
		}
	}
	if slices.Equal(told, record.Told) {
		return nil, nil
	}
	record.Told = told
	if err := k.Records.SaveLimits(record); err != nil {
		return nil, fmt.Errorf("recording who is told: %w", err)
	}
	return found, nil
}

// fellBack is why a claim's shares are the library's although they should be the driver's; "" where they are as they should be.
func fellBack(
	claim checkpoint.Claim, published checkpoint.Published, held map[string]v1alpha1.GPUMemoryLimits, refused map[string]string,
) string {
	if message := refused[claim.UID]; message != "" {
		return message
	}
	for _, r := range claim.Results {
		offered := published.ByUUID(r.GPU)
		if !r.Enforced || r.Admin || r.LimitsBackend != "" || offered == nil {
			continue
		}
		if l := held[r.GPU]; memlimits.FellBack(offered.Form, l) {
			return l.Message
		}
	}
	return ""
}
