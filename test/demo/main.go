// SPDX-License-Identifier: Apache-2.0

// Command demo shows Sluice's main job on this machine: a real Kubernetes control plane, the real manager and node
// agents over fake GPUs, three pools, and tenants of every form. The cluster stays up for kubectl.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	dir := filepath.Join(os.TempDir(), "sluice-demo-"+strconv.Itoa(os.Getuid()))
	switch {
	case len(args) == 1 && args[0] == "up":
		return up(ctx, dir)
	case len(args) == 1 && args[0] == "down":
		return down(ctx, dir)
	default:
		return fmt.Errorf("usage: demo up | demo down")
	}
}
