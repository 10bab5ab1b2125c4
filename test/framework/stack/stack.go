// SPDX-License-Identifier: Apache-2.0

// Package stack brings a whole Sluice up on the lab: a control plane, the manager, and simulated nodes that run the
// real agent over fake GPUs. The demo and the integration tests are built on it, so both see what users see.
package stack

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
	"runtime"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/front"
)

// Namespace is where Sluice's own objects are.
const Namespace = "sluice-system"

// Stack is a Sluice that runs on a lab.
type Stack struct {
	// Dir holds the lab's state and logs.
	Dir string
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Binaries is the directory of kubectl and the control plane's programs.
	Binaries string
	// Config is the administrator's client configuration.
	Config *rest.Config
	// Client is the administrator's client; it reads from the API server.
	Client client.Client

	log     io.Writer
	front   *front.Front
	metrics []string
}

// Options say how a stack comes up.
type Options struct {
	// Dir is where the lab's state goes; it is created.
	Dir string
	// Log receives the progress.
	Log io.Writer
	// ManagerArgs are further flags of the manager.
	ManagerArgs []string
	// Managers is how many replicas of the manager run. Several are behind one address, which this process serves. 0 is 1.
	Managers int
}

// Up brings up the control plane and the manager. What `make build fakegpu lab` makes must be there.
func Up(ctx context.Context, o Options) (*Stack, error) {
	s := &Stack{Dir: o.Dir, log: o.Log}
	var up struct{ Kubeconfig, Binaries string }
	if err := s.labJSON(ctx, &up, "up"); err != nil {
		return nil, err
	}
	s.Kubeconfig, s.Binaries = up.Kubeconfig, up.Binaries
	if err := s.connect(); err != nil {
		return nil, errors.Join(err, s.Down(ctx))
	}
	if err := s.install(ctx, o); err != nil {
		return nil, errors.Join(err, s.Down(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// connect makes the administrator's client.
func (s *Stack) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, 0 // a test waits for the cluster, not for its own client
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	s.Config = config
	if s.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// Down stops and removes everything.
func (s *Stack) Down(ctx context.Context) error {
	down := s.lab(ctx, "down")
	if s.front == nil {
		return down
	}
	return errors.Join(down, s.front.Close())
}

// Stop takes a component away: kube-apiserver, manager, ... A manager has the time that Kubernetes gives a pod: it gives up its
// lease last, once its webhooks have answered, and one that is killed before that leaves it for a minute.
func (s *Stack) Stop(ctx context.Context, component string) error {
	if strings.HasPrefix(component, ManagerName(0)) {
		return s.lab(ctx, "stop", component, "--grace=30s")
	}
	return s.lab(ctx, "stop", component)
}

// Kill ends a component as a crash would.
func (s *Stack) Kill(ctx context.Context, component string) error {
	return s.lab(ctx, "stop", component, "--grace=0s")
}

// Start brings a stopped component back, as it was.
func (s *Stack) Start(ctx context.Context, component string) error {
	return s.lab(ctx, "start", component)
}

// Kubectl runs kubectl as the administrator and returns its standard output.
func (s *Stack) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Binaries, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// lab runs a command of the lab on this stack's directory.
func (s *Stack) lab(ctx context.Context, args ...string) error {
	return s.labJSON(ctx, nil, args...)
}

// labJSON runs a command of the lab and decodes what it prints; progress goes to the log.
func (s *Stack) labJSON(ctx context.Context, result any, args ...string) error {
	command := args[0]
	args = append([]string{command, "--dir", s.Dir}, args[1:]...)
	if command == "node" { // its own verb comes first
		args = append([]string{command, args[3], "--dir", s.Dir}, args[4:]...)
	}
	if result != nil {
		args = append(args, "--output", "json")
	}
	cmd := exec.CommandContext(ctx, Path("bin", "lab"), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, s.log)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("lab %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(stdout.Bytes(), result); err != nil {
		return fmt.Errorf("reading what lab %s printed: %w", command, err)
	}
	return nil
}

// RootVariable names the repository, or a directory with as much of it as tests need, where they do not run on the machine that
// compiled them.
const RootVariable = "SLUICE_TEST_ROOT"

// Path is a path inside the repository.
func Path(elem ...string) string {
	root := os.Getenv(RootVariable)
	if root == "" {
		_, here, _, _ := runtime.Caller(0)
		root = filepath.Join(filepath.Dir(here), "..", "..", "..")
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// At is a stack that another process brought up, to take it down.
func At(dir string, log io.Writer) *Stack { return &Stack{Dir: dir, log: log} }
