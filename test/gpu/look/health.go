// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// health prints what the driver says of each GPU's health, and whether it can be listened to.
func health(ctx context.Context, door *nvml.Door, node gpu.Node) error {
	var uuids []string
	for _, g := range node.GPUs {
		uuids = append(uuids, g.UUID)
		vitals, err := door.Vitals(ctx, g.UUID)
		if err != nil {
			return fmt.Errorf("reading vitals: %w", err)
		}
		fmt.Printf("vitals of %s: %+v\n", g.UUID, vitals)
	}
	if err := timed("vitals of one GPU", func() error { _, err := door.Vitals(ctx, uuids[0]); return err }); err != nil {
		return err
	}
	events, err := door.Events(ctx, uuids)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer events.Close()
	event, came, err := events.Wait(time.Second)
	fmt.Printf("events in a second: %v %+v %v\n", came, event, err)
	return nil
}
