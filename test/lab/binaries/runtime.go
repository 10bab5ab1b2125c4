// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	lab "github.com/sluice-gpu/sluice/test/lab"
)

// The programs of a container runtime.
const (
	Containerd = "containerd"
	Shim       = "containerd-shim-runc-v2"
	Ctr        = "ctr"
	// Pause holds a pod's namespaces.
	Pause = "pause"
)

// containerdVersion is the version of containerd that machines run.
const containerdVersion = "v2.4.2"

func runtimeNames() []string { return []string{Containerd, Shim, Ctr, Pause} }

// EnsureRuntime returns the directory with containerd, its shim and ctr, building them if the cache has none. They are
// programs of a module with requirements of its own: in one build with Kubernetes each would get other dependencies than it
// was released with.
func (b Builder) EnsureRuntime(ctx context.Context) (string, error) {
	if b.Given != "" {
		if err := check(b.Given, runtimeNames()); err != nil {
			return "", fmt.Errorf("using the programs given: %w", err)
		}
		return filepath.Abs(b.Given)
	}
	dir := filepath.Join(b.Cache, "containerd-"+containerdVersion)
	if check(dir, runtimeNames()) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock", func() {
		fmt.Fprintln(b.Progress, "Another build of the container runtime is running; waiting for it.")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if check(dir, runtimeNames()) == nil {
		return dir, nil
	}
	if err := b.buildRuntime(ctx, dir); err != nil {
		return "", fmt.Errorf("building the container runtime: %w", err)
	}
	return dir, nil
}

func (b Builder) buildRuntime(ctx context.Context, dir string) (err error) {
	scratch, err := os.MkdirTemp(b.Cache, "build-")
	if err != nil {
		return fmt.Errorf("making a scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	out := filepath.Join(scratch, "out")
	args := []string{"install", "-trimpath", "-tags", "no_btrfs,no_devmapper,no_zfs",
		"-ldflags", "-s -w -X github.com/containerd/containerd/v2/version.Version=" + containerdVersion}
	for _, name := range []string{Containerd, Shim, Ctr} {
		args = append(args, "github.com/containerd/containerd/v2/cmd/"+name+"@"+containerdVersion)
	}
	cmd := goCommand(ctx, scratch, args...)
	cmd.Env = append(cmd.Env, "GOBIN="+out)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	fmt.Fprintf(b.Progress, "Building containerd %s from Go modules. The first time, this takes some minutes.\n", containerdVersion)
	building := newTicker(b.Progress, b.Every, func(took time.Duration) string { return fmt.Sprintf("  %s compiling", took) })
	err = errors.Join(cmd.Run(), buildPause(ctx, scratch, filepath.Join(out, Pause)))
	took := building.stop()
	if err != nil {
		return fmt.Errorf("compiling: %w\n%s", err, complaint.String())
	}
	fmt.Fprintf(b.Progress, "Built in %s.\n", took)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing an unusable build: %w", err)
	}
	if err := os.Rename(out, dir); err != nil {
		return fmt.Errorf("putting the build in its place: %w", err)
	}
	return nil
}

func buildPause(ctx context.Context, scratch, out string) error {
	source := filepath.Join(scratch, "pause.go")
	if err := os.WriteFile(source, lab.Pause, 0o644); err != nil {
		return fmt.Errorf("laying out the source: %w", err)
	}
	if output, err := goCommand(ctx, scratch, "build", "-trimpath", "-ldflags", "-s -w", "-o", out, source).CombinedOutput(); err != nil {
		return fmt.Errorf("compiling pause: %w\n%s", err, output)
	}
	return nil
}

// HostPrograms are the programs that machines take from the host, where they are not in the usual places.
type HostPrograms struct {
	// Runc is the program that makes containers.
	Runc string
	// CNI is the directory of the network plugins.
	CNI string
}

// FindHostPrograms finds what a machine takes from the host, or from the directory of programs given, where that has it: runc,
// and the plugins below cni. The error names the packages of what is missing.
func FindHostPrograms(given string) (HostPrograms, error) {
	var found HostPrograms
	for _, path := range []string{filepath.Join(given, "runc"), "/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc", "/usr/local/bin/runc"} {
		if _, err := exec.LookPath(path); err == nil {
			found.Runc = path
			break
		}
	}
	for _, dir := range []string{filepath.Join(given, "cni"), "/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := exec.LookPath(filepath.Join(dir, "bridge")); err == nil {
			found.CNI = dir
			break
		}
	}
	if found.Runc == "" {
		return found, errors.New("there is no runc on this host: install the package runc")
	}
	if found.CNI == "" {
		return found, errors.New("there are no network plugins on this host: install the package containernetworking-plugins")
	}
	return found, nil
}
