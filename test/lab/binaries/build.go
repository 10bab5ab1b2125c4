// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	lab "github.com/sluice-gpu/sluice/test/lab"
)

// Builder provides a directory of programs.
type Builder struct {
	// Given is a directory of ready programs, used as it is; empty means built ones.
	Given string
	// Cache is the directory that builds are kept in.
	Cache string
	// Source is the module to build, lab.Source outside tests.
	Source fs.FS
	// Progress gets lines for people.
	Progress io.Writer
	// Every is how often progress is told.
	Every time.Duration
}

// Ensure returns the directory with all programs, building them if the cache has none.
func (b Builder) Ensure(ctx context.Context) (string, error) {
	if b.Given != "" {
		if err := Check(b.Given); err != nil {
			return "", fmt.Errorf("using the programs given: %w", err)
		}
		return filepath.Abs(b.Given)
	}
	name, err := key(b.Source)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.Cache, name)
	if Check(dir) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock", func() {
		fmt.Fprintln(b.Progress, "Another build of the same cluster is running; waiting for it.")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if Check(dir) == nil {
		return dir, nil
	}
	if err := b.build(ctx, dir); err != nil {
		return "", fmt.Errorf("building the cluster: %w", err)
	}
	return dir, nil
}

// build compiles into a directory beside the final one and renames it: a build cut short leaves nothing that looks ready.
func (b Builder) build(ctx context.Context, dir string) (err error) {
	scratch, err := os.MkdirTemp(b.Cache, "build-")
	if err != nil {
		return fmt.Errorf("making a scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	source, out := filepath.Join(scratch, "source"), filepath.Join(scratch, "out")
	if err := os.CopyFS(source, b.Source); err != nil {
		return fmt.Errorf("laying out the source: %w", err)
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	version, err := kubernetesVersion(b.Source)
	if err != nil {
		return err
	}
	if err := b.compile(ctx, source, filepath.Join(out, "cluster"), version); err != nil {
		return err
	}
	for _, name := range Names() {
		if err := os.Symlink("cluster", filepath.Join(out, name)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing an unusable build: %w", err)
	}
	return os.Rename(out, dir)
}

func (b Builder) compile(ctx context.Context, source, out, version string) error {
	fmt.Fprintf(b.Progress, "Building a Kubernetes %s control plane from Go modules. The first time, this takes 5 to 20 minutes.\n", version)
	list := goCommand(ctx, source, "list", "-tags", lab.ClusterTag, "-deps", lab.ClusterPackage)
	var packages, complaint bytes.Buffer
	list.Stdout, list.Stderr = &packages, &complaint
	fetching := newTicker(b.Progress, b.Every, func(took time.Duration) string {
		return fmt.Sprintf("  %s fetching modules", took)
	})
	err := list.Run()
	fetching.stop()
	if err != nil {
		return fmt.Errorf("fetching modules: %w\n%s", err, complaint.String())
	}
	total := bytes.Count(packages.Bytes(), []byte("\n"))

	compiled := &lineCounter{}
	args := []string{"build", "-v", "-tags", lab.ClusterTag, "-trimpath", "-ldflags", ldflags(version), "-o", out, lab.ClusterPackage}
	build := goCommand(ctx, source, args...)
	build.Stderr = compiled
	compiling := newTicker(b.Progress, b.Every, func(took time.Duration) string {
		return fmt.Sprintf("  %s compiled %d of at most %d packages", took, compiled.count(), total)
	})
	err = build.Run()
	took := compiling.stop()
	if err != nil {
		return fmt.Errorf("compiling: %w\n%s", err, compiled.tail())
	}
	fmt.Fprintf(b.Progress, "Built in %s: %d packages compiled, the rest was cached.\n", took, compiled.count())
	return nil
}

// goCommand runs go on the source alone: a workspace or flags of the caller's would change what is built.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// ldflags sets the version that the programs report: without it the API server calls itself v0.0.0, and feature gates,
// which are judged by version, fail.
func ldflags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const pkg = "k8s.io/component-base/version."
	return fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s", pkg, version, pkg, major, pkg, minor)
}

// FromEnvironment makes the Builder that commands use.
func FromEnvironment(given string, progress io.Writer) (Builder, error) {
	cache, err := CacheDir()
	if err != nil && given == "" {
		return Builder{}, errors.Join(err, errors.New("set XDG_CACHE_HOME or HOME"))
	}
	return Builder{Given: given, Cache: cache, Source: lab.Source, Progress: progress, Every: 15 * time.Second}, nil
}
