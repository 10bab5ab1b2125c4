// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// DriverRoot is where the fake driver lies on a machine.
const DriverRoot = "/run/nvidia/driver"

// Release is the name of Sluice's release, in stack.Namespace.
const Release = "sluice"

// PresentLabel is the label of nodes that have a GPU, as the GPU operator gives it.
const PresentLabel = "nvidia.com/gpu.present"

// Images are the archives of Sluice's images and of the tests' own: what `make images` and `make tenant-images` make.
func Images() ([]string, error) {
	return present("make images tenant-images",
		stack.Path("bin", "images", "manager.tar"), stack.Path("bin", "images", "node-agent.tar"),
		stack.Path("test", "e2e", "images", "build", "busybox.tar"), stack.Path("test", "e2e", "images", "build", "cuda-tenant.tar"))
}

// PreviousTag is the tag of the images that PreviousImages has.
const PreviousTag = "previous"

// PreviousChart is where the chart of the commit before this one is: what `make previous-images` puts there.
func PreviousChart() string { return stack.Path("bin", "images", "previous", "chart") }

// PreviousImages are the archives of Sluice's images of the commit before this one: what `make previous-images` makes.
func PreviousImages() ([]string, error) {
	return present("make previous-images",
		stack.Path("bin", "images", "previous", "manager.tar"), stack.Path("bin", "images", "previous", "node-agent.tar"))
}

// present are archives that are there, or an error that says what makes them.
func present(by string, archives ...string) ([]string, error) {
	for _, archive := range archives {
		if _, err := os.Stat(archive); err != nil {
			return nil, fmt.Errorf("looking for the images (%s): %w", by, err)
		}
	}
	return archives, nil
}

// Install installs the chart, or upgrades its release to it, and waits until all that it starts is ready. Further values are
// as in name=value.
func (l *Lab) Install(ctx context.Context, chart string, values ...string) error {
	helm, err := l.helm(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"upgrade", Release, chart, "--install", "--namespace", stack.Namespace, "--create-namespace"}, set(values)...)
	if _, err := l.run(ctx, helm, args...); err != nil {
		return err
	}
	return l.Ready(ctx)
}

// Rollback brings the release back to what it was before its last upgrade, and waits as Install does.
func (l *Lab) Rollback(ctx context.Context) error {
	helm, err := l.helm(ctx)
	if err != nil {
		return err
	}
	if _, err := l.run(ctx, helm, "rollback", Release, "--namespace", stack.Namespace); err != nil {
		return err
	}
	return l.Ready(ctx)
}

// Render renders the chart as Install would install it.
func (l *Lab) Render(ctx context.Context, chart string, values ...string) (string, error) {
	helm, err := l.helm(ctx)
	if err != nil {
		return "", err
	}
	args := append([]string{"template", Release, chart, "--namespace", stack.Namespace, "--no-hooks"}, set(values)...)
	return l.run(ctx, helm, args...)
}

// set are Helm's arguments for values, those of all tests first.
func set(values []string) []string {
	var args []string
	for _, value := range append([]string{"image.tag=dev", "image.pullPolicy=Never", "agent.driverRoot=" + DriverRoot}, values...) {
		args = append(args, "--set", value)
	}
	return args
}

// Ready waits until all that the chart starts is ready, and nothing of an earlier version is left.
func (l *Lab) Ready(ctx context.Context) error {
	for _, what := range []string{"deployment/sluice-manager", "daemonset/sluice-node-agent"} {
		if _, err := l.Kubectl(ctx, "rollout", "status", what, "--namespace", stack.Namespace, "--timeout=120s"); err != nil {
			return err
		}
	}
	return nil
}

// Uninstall removes the release.
func (l *Lab) Uninstall(ctx context.Context) error {
	helm, err := l.helm(ctx)
	if err != nil {
		return err
	}
	_, err = l.run(ctx, helm, "uninstall", Release, "--namespace", stack.Namespace, "--wait")
	return err
}

// helm is the path of Helm, built where no cache has it.
func (l *Lab) helm(ctx context.Context) (string, error) {
	path, err := l.run(ctx, stack.Path("hack", "helm.sh"))
	return strings.TrimSpace(path), err
}
