// SPDX-License-Identifier: Apache-2.0

// Command look runs the node agent's doors on the real driver of this machine and prints what they see and how long they
// take. It reads only: no setting of a GPU is changed, MIG included.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// rounds is how often each call is timed.
const rounds = 500

const claimUID = "11111111-2222-3333-4444-555555555555"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "look:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	library, err := nvml.FindLibrary("/")
	if err != nil {
		return fmt.Errorf("finding NVML: %w", err)
	}
	door, err := nvml.Open(library)
	if err != nil {
		return fmt.Errorf("opening NVML: %w", err)
	}
	defer door.Close()
	begin := time.Now()
	node, err := door.Look(ctx)
	if err != nil {
		return fmt.Errorf("looking: %w", err)
	}
	fmt.Printf("driver %s, %d GPUs, first look %s\n", node.DriverVersion, len(node.GPUs), time.Since(begin).Round(time.Microsecond))
	for _, g := range node.GPUs {
		if err := show(g); err != nil {
			return err
		}
	}
	if err := timed("look, warm", func() error { _, err := door.Look(ctx); return err }); err != nil {
		return err
	}
	if err := health(ctx, door, node); err != nil {
		return err
	}
	return specs(door, node)
}

// show prints a GPU and the order in which its placements would be published.
func show(g gpu.GPU) error {
	facts := g
	facts.Profiles = nil
	text, err := json.Marshal(facts)
	if err != nil {
		return fmt.Errorf("writing the facts: %w", err)
	}
	fmt.Printf("%s\n", text)
	for _, p := range g.Profiles {
		fmt.Printf("  %-12s %8d MiB  g %d  slices %d  starts in order %v  max %d\n",
			p.Name, p.MemoryBytes>>20, p.ComputeSlices, p.MemorySlices, devices.StartOrder(g, p), p.Max)
	}
	return nil
}

// specs writes and removes the CDI spec of a claim of the first GPU.
func specs(door *nvml.Door, node gpu.Node) error {
	dir, err := os.MkdirTemp("", "sluice-cdi-")
	if err != nil {
		return fmt.Errorf("making a directory for specs: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	writer, err := cdi.New(cdi.Options{SpecDir: dir, NVML: door.Library}, logr.Discard())
	if err != nil {
		return fmt.Errorf("opening the CDI door: %w", err)
	}
	grants := []cdi.Grant{{Name: "0", UUID: node.GPUs[0].UUID}}
	begin := time.Now()
	if _, err := writer.Write(claimUID, grants); err != nil {
		return fmt.Errorf("writing a spec: %w", err)
	}
	fmt.Printf("%-24s %s\n", "CDI spec, first", time.Since(begin).Round(time.Microsecond))
	return timed("CDI spec, warm", func() error { _, err := writer.Write(claimUID, grants); return err })
}

func timed(what string, call func() error) error {
	took := make([]time.Duration, 0, rounds)
	for range rounds {
		begin := time.Now()
		if err := call(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		took = append(took, time.Since(begin))
	}
	slices.SortFunc(took, cmp.Compare[time.Duration])
	fmt.Printf("%-24s p50 %s  p99 %s\n", what, took[rounds/2], took[rounds*99/100])
	return nil
}
