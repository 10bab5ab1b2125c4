// SPDX-License-Identifier: Apache-2.0

// Package faults_test takes away, one after the other, what Sluice stands on, from images and chart, on machines with kubelet,
// containerd and real containers: running tenants keep their limits and their work, new ones start when they can, nothing leaks
// and nothing is granted twice.
//
// A jump of the wall clock is not among it: the kernel has namespaces for the clocks that count from the boot only, and the wall
// clock is the host's. Library and arbiter read no wall clock (interceptor/tests and node-agent/arbiter).
package faults_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
)

// The machines: one with eight GPUs, two of which are divided by MIG, and one with a single GPU whose whole it can lose. Each
// has a pool of its name; the divided GPUs are another one's.
const (
	large   = "large"
	small   = "small"
	divided = "divided"
)

var (
	lab  *machine.Lab
	long bool
)

func TestMain(m *testing.M) {
	flag.BoolVar(&long, "long", false, "run outages and loops at their full length")
	os.Exit(machine.Main(m, &lab, machine.Shared{Timeout: time.Hour, Furnish: furnish}))
}

// either is how long something lasts: in each run, and in one at full length.
func either(short, full time.Duration) time.Duration {
	if long {
		return full
	}
	return short
}

// furnish adds the machines, installs an earlier chart and earlier images, and makes the pools.
func furnish(ctx context.Context, l *machine.Lab) error {
	images, err := machine.Images()
	if err != nil {
		return fmt.Errorf("furnishing the lab: %w", err)
	}
	previous, err := machine.PreviousImages()
	if err != nil {
		return fmt.Errorf("furnishing the lab: %w", err)
	}
	images = append(images, previous...)
	for _, m := range []machine.Machine{
		{Name: large, GPUs: 6, Divided: 2}, {Name: small, GPUs: 1, StateDisk: 64},
	} {
		m.Board, m.Images = "h100-80gb", images
		m.Labels = map[string]string{machine.PresentLabel: "true", builders.PoolNodeLabel: m.Name}
		if err := l.Add(ctx, m); err != nil {
			return fmt.Errorf("adding a machine: %w", err)
		}
	}
	if err := installPrevious(ctx, l); err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	whole := builders.MakePool(large).Nodes(large).MaxTenants(16).Default().Obj()
	whole.Spec.GPUSelector = v1alpha1.GPUSelector{Minors: []int32{0, 1, 2, 3, 4, 5}}
	instances := builders.MakePool(divided).Nodes(large).MIG().Obj()
	instances.Spec.GPUSelector = v1alpha1.GPUSelector{Minors: []int32{6, 7}}
	for _, pool := range []*v1alpha1.GPUPool{whole, instances, builders.MakePool(small).Nodes(small).MaxTenants(16).Obj()} {
		if err := l.Client.Create(ctx, pool); err != nil {
			return fmt.Errorf("making a pool: %w", err)
		}
	}
	return nil
}

// installPrevious installs the chart and the images of the commit before this one, with a version and some values of its own.
func installPrevious(ctx context.Context, l *machine.Lab) error {
	dir, err := os.MkdirTemp("", "sluice-chart-")
	if err != nil {
		return fmt.Errorf("making the earlier chart: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	chart := filepath.Join(dir, "sluice")
	if err := os.CopyFS(chart, os.DirFS(machine.PreviousChart())); err != nil {
		return fmt.Errorf("making the earlier chart: %w", err)
	}
	about := filepath.Join(chart, "Chart.yaml")
	text, err := os.ReadFile(about)
	if err != nil {
		return fmt.Errorf("making the earlier chart: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "version:") {
			line = "version: 0.0.0-previous\n"
		}
		lines = append(lines, line)
	}
	if err := os.WriteFile(about, []byte(strings.Join(lines, "")), 0o644); err != nil {
		return fmt.Errorf("making the earlier chart: %w", err)
	}
	return l.Install(ctx, chart, "image.tag="+machine.PreviousTag,
		"manager.drainSettle=5s", "agent.verbosity=1", "agent.resources.requests.cpu=50m", "agent.podAnnotations.example\\.org/previous=yes")
}
