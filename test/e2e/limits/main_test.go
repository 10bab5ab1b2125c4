// SPDX-License-Identifier: Apache-2.0

// Package limits_test has the driver hold the memory limits of containers by their cgroups, on machines with kubelet, containerd
// and real containers: nothing that root of a container can do gets past that. It needs a host with cgroup v2; the driver and
// its GPUs are fake, of the first release that has such limits.
//
// It runs where there is neither Go nor the repository, too. Compile it, and take along what it runs, under these names:
//
//	go test -c -o limits.test ./test/e2e/limits
//	ROOT/bin/lab                                            test/lab/cmd/lab, the command
//	ROOT/bin/images/{manager,node-agent}.tar                make images
//	ROOT/test/e2e/images/build/{busybox,cuda-tenant}.tar    make tenant-images
//	ROOT/test/fakegpu/build/                                make fakegpu
//	PROGRAMS                                                the lab's programs (test/lab/README.md), runc and cni/ with them
//	SLUICE_TEST_ROOT=ROOT SLUICE_LAB_BIN=PROGRAMS ./limits.test -test.v -manifest sluice.yaml
//
// where sluice.yaml is the chart as `helm template` renders it (see install), for a machine without Helm; and with further
// arguments of `lab machine up` in -machine.
package limits_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// driver is the first release of the driver that has limits.
const driver = "615.71.09"

// backends are where that driver may keep them. Each is a machine of that name, with a pool of its GPU.
var backends = []string{"dmem", "misc"}

var (
	lab       *machine.Lab
	manifest  = flag.String("manifest", "", "file with the chart's objects, to apply in place of the chart; empty: the chart, by Helm")
	arguments = flag.String("machine", "", "further arguments of `lab machine up`, separated by spaces")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !cgroup2() {
		os.Exit(m.Run()) // each test says so
	}
	os.Exit(machine.Main(m, &lab, machine.Shared{Timeout: 20 * time.Minute, Furnish: furnish}))
}

// cgroup2 is true where the host's cgroups are those of version 2, which alone the driver knows.
func cgroup2() bool {
	var fs unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

func furnish(ctx context.Context, l *machine.Lab) error {
	images, err := machine.Images()
	if err != nil {
		return fmt.Errorf("furnishing the lab: %w", err)
	}
	for _, backend := range backends {
		err := l.Add(ctx, machine.Machine{
			Name: backend, Board: "h200-141gb", GPUs: 1, DriverVersion: driver, Limits: backend, Images: images,
			Labels:    map[string]string{machine.PresentLabel: "true", builders.PoolNodeLabel: backend},
			Arguments: strings.Fields(*arguments),
		})
		if err != nil {
			return fmt.Errorf("adding a machine: %w", err)
		}
	}
	if err := install(ctx, l); err != nil {
		return fmt.Errorf("installing Sluice: %w", err)
	}
	for _, backend := range backends {
		pool := builders.MakePool(backend).Nodes(backend).Overcommit(150, 200).MaxTenants(16).Obj()
		if err := l.Client.Create(ctx, pool); err != nil {
			return fmt.Errorf("making a pool: %w", err)
		}
	}
	return nil
}

// install installs the chart, or the objects that `helm template sluice charts/sluice --namespace sluice-system --include-crds
// --no-hooks --set image.tag=dev,image.pullPolicy=Never,agent.driverRoot=/run/nvidia/driver` has made of it.
func install(ctx context.Context, l *machine.Lab) error {
	if *manifest == "" {
		if err := l.Install(ctx, stack.Path("charts", "sluice")); err != nil {
			return fmt.Errorf("by Helm: %w", err)
		}
		return nil
	}
	path, err := filepath.Abs(*manifest)
	if err != nil {
		return fmt.Errorf("looking for the manifest: %w", err)
	}
	if _, err := l.Kubectl(ctx, "create", "namespace", stack.Namespace); err != nil {
		return fmt.Errorf("by kubectl: %w", err)
	}
	// Twice: the first time has the definitions of objects that others are instances of.
	_, _ = l.Kubectl(ctx, "apply", "--server-side", "--filename", path)
	if _, err := l.Kubectl(ctx, "apply", "--server-side", "--filename", path); err != nil {
		return fmt.Errorf("by kubectl: %w", err)
	}
	for _, what := range []string{"deployment/sluice-manager", "daemonset/sluice-node-agent"} {
		if _, err := l.Kubectl(ctx, "rollout", "status", what, "--namespace", stack.Namespace, "--timeout=120s"); err != nil {
			return fmt.Errorf("by kubectl: %w", err)
		}
	}
	return nil
}
