// SPDX-License-Identifier: Apache-2.0

// Package cluster brings up a control plane with the CRDs of Sluice and nothing else: for tests of the API and of single
// controllers. Tests of the whole product stand on test/framework/stack.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// upTimeout is the longest that a control plane may take; building it, where no cache has it, takes most of that.
const upTimeout = 30 * time.Minute

// Cluster is a control plane on loopback.
type Cluster struct {
	// Dir holds the lab's state and logs.
	Dir string
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Binaries is the directory of kubectl and the control plane's programs.
	Binaries string
	// Config is the administrator's client configuration, without a rate limit.
	Config *rest.Config
	// Client is the administrator's client; it reads from the API server.
	Client client.Client

	lab string
	log io.Writer
}

// Main runs a package's tests on one cluster, which it stores in c first. It is all that a TestMain has to call.
func Main(m *testing.M, c **Cluster) int {
	ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "sluice-api-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	up, err := Up(ctx, filepath.Join(dir, "lab"), os.Stderr)
	if err != nil {
		return fail(err)
	}
	*c = up
	code := m.Run()
	if err := up.Down(context.WithoutCancel(ctx)); err != nil {
		return fail(err)
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Up brings up a control plane below dir and applies the CRDs. Progress goes to log.
func Up(ctx context.Context, dir string, log io.Writer) (*Cluster, error) {
	lab, err := labBinary(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, lab: lab, log: log}
	var up struct{ Kubeconfig, Binaries string }
	if err := c.Lab(ctx, &up, "up"); err != nil {
		return nil, err
	}
	c.Kubeconfig, c.Binaries = up.Kubeconfig, up.Binaries
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Down(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// labBinary is the lab's program, built where `make lab` has not done so.
func labBinary(ctx context.Context) (string, error) {
	path := stack.Path("bin", "lab")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", path, "./cmd/lab")
	cmd.Dir = stack.Path("test", "lab")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the lab: %w: %s", err, bytes.TrimSpace(out))
	}
	return path, nil
}

// prepare makes the client and applies the CRDs.
func (c *Cluster) prepare(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	config.QPS = -1
	scheme, err := stack.Scheme()
	if err != nil {
		return err
	}
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	c.Config = config
	crds := stack.Path("config", "crd")
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", crds},
		{"wait", "--for=condition=Established", "--timeout=60s", "-f", crds},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Down stops and removes the control plane.
func (c *Cluster) Down(ctx context.Context) error { return c.Lab(ctx, nil, "down") }

// Kubectl runs kubectl as the administrator and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlStdin(ctx, nil, args...)
}

// KubectlStdin is Kubectl with standard input.
func (c *Cluster) KubectlStdin(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Binaries, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Lab runs a command of the lab on this cluster; a result that is not nil is decoded from what it prints.
func (c *Cluster) Lab(ctx context.Context, result any, args ...string) error {
	args = append([]string{args[0], "--dir", c.Dir}, args[1:]...)
	if result != nil {
		args = append(args, "--output", "json")
	}
	cmd := exec.CommandContext(ctx, c.lab, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, c.log)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("lab %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(stdout.Bytes(), result); err != nil {
		return fmt.Errorf("reading what lab %v printed: %w", args, err)
	}
	return nil
}
