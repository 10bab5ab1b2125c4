// SPDX-License-Identifier: Apache-2.0

// Command arbiter is the node agent's arbiter alone, for tests of compute shares without a cluster: it grants shares below a
// directory, changes them, and arbitrates those that it finds there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/node-agent/arbiter"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const usage = `usage:
       arbiter library --shares DIR --file LIBRARY
       arbiter grant   --shares DIR --claim UID [--index N] --gpu UUID --compute PERCENT [--cap] [--memory MIB]
       arbiter run     --shares DIR`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "arbiter:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	root := flags.String("shares", "", "the share directory")
	switch arguments[0] {
	case "library":
		return library(flags, root, arguments[1:])
	case "grant":
		return grant(flags, root, arguments[1:])
	case "run":
		if err := flags.Parse(arguments[1:]); err != nil {
			return fmt.Errorf("reading the flags: %w", err)
		}
		return run(ctx, *root)
	default:
		return errors.New(usage)
	}
}

// library places the library where the agent has it, so that shares and library are on one file system.
func library(flags *flag.FlagSet, root *string, arguments []string) error {
	file := flags.String("file", "", "the library")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("reading the flags: %w", err)
	}
	if _, err := limits.New(*root); err != nil {
		return err
	}
	dir := filepath.Join(*root, limits.LibraryDir, "1.0")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: tenants of any user load it
		return fmt.Errorf("making the library's directory: %w", err)
	}
	from, err := os.Open(*file) //nolint:gosec // G703: whoever runs the test names the file
	if err != nil {
		return fmt.Errorf("opening the library: %w", err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "libsluice.so"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755) //nolint:gosec // G302: tenants of any user load it
	if err != nil {
		return fmt.Errorf("making the library: %w", err)
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

func grant(flags *flag.FlagSet, root *string, arguments []string) error {
	claim := flags.String("claim", "", "the claim's UID")
	index := flags.Int("index", 0, "the result's index in the claim")
	uuid := flags.String("gpu", "", "the GPU's UUID")
	compute := flags.Float64("compute", 0, "percent of the GPU's time; 0 is best effort")
	capped := flags.Bool("cap", false, "never more than that")
	memory := flags.Uint64("memory", 16384, "MiB that the claim may hold")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("reading the flags: %w", err)
	}
	door, err := limits.New(*root)
	if err != nil {
		return err
	}
	policy := limits.PolicyShare
	if *capped {
		policy = limits.PolicyCap
	}
	_, err = door.Write(limits.Share{
		ClaimUID: *claim, Index: *index, UUID: *uuid, MemoryLimit: *memory << 20, Context: shares.ContextBytes,
		ComputeShare: uint32(*compute * 100), Policy: policy, Enforce: limits.EnforceMemory | limits.EnforceCompute,
	})
	return err
}

// run arbitrates until it is told to stop, with the heart beating as the agent's does: from when the gates are shut to when
// they are left.
func run(ctx context.Context, root string) error {
	door, err := limits.New(root)
	if err != nil {
		return err
	}
	heartbeat, err := door.Heartbeat()
	if err != nil {
		return err
	}
	defer heartbeat.Close() //nolint:errcheck // the process ends
	metrics, err := arbiter.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	a, err := arbiter.Begin(arbiter.Options{Shares: door, Metrics: metrics, Log: logger()})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	ticker := time.NewTicker(limits.HeartbeatPeriod)
	defer ticker.Stop()
	for first := true; ; first = false {
		now, err := limits.Monotonic()
		if err != nil {
			return err
		}
		if err := heartbeat.Beat(now); err != nil {
			return err
		}
		if first {
			fmt.Println("arbitrating")
		}
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
		}
	}
}

func logger() logr.Logger {
	return funcr.New(func(prefix, arguments string) { fmt.Fprintln(os.Stderr, "arbiter:", prefix, arguments) }, funcr.Options{})
}
