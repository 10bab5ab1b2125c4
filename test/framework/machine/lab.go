// SPDX-License-Identifier: Apache-2.0

// Package machine brings Sluice up as its users do: images and chart on a real Kubernetes whose nodes are machines of the lab,
// with kubelet, containerd and real containers over fake GPUs. It needs root.
package machine

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
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// Lab is a control plane with machines.
type Lab struct {
	// Dir holds the lab's state and logs.
	Dir string
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Binaries is the directory of kubectl and the control plane's programs.
	Binaries string
	// Client is the administrator's client; it reads from the API server.
	Client client.Client

	log io.Writer
}

// Up brings up a control plane below dir. Progress goes to log. What `make lab` makes must be there.
func Up(ctx context.Context, dir string, log io.Writer) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("machines need root: they are namespaces, mounts and containers of their own")
	}
	l := &Lab{Dir: dir, log: log}
	out, err := l.run(ctx, stack.Path("bin", "lab"), "up", "--machines", "--dir", dir, "--output", "json")
	if err != nil {
		return nil, err
	}
	if err := l.connect([]byte(out)); err != nil {
		return nil, errors.Join(err, l.Down(ctx))
	}
	return l, nil
}

// At is the lab that stands below dir.
func At(dir string, log io.Writer) (*Lab, error) {
	l := &Lab{Dir: dir, log: log}
	state, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return nil, fmt.Errorf("looking for the lab: %w", err)
	}
	return l, l.connect(state)
}

// connect makes the administrator's client of a lab by its state.
func (l *Lab) connect(state []byte) error {
	var up struct{ Kubeconfig, Binaries string }
	if err := json.Unmarshal(state, &up); err != nil {
		return fmt.Errorf("reading the lab's state: %w", err)
	}
	l.Kubeconfig, l.Binaries = up.Kubeconfig, up.Binaries
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, 0 // a test waits for the cluster, not for its own client
	scheme, err := stack.Scheme()
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if l.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// Down ends the machines and the control plane, and removes what they had. The control plane's logs stay.
func (l *Lab) Down(ctx context.Context) error {
	_, err := l.run(ctx, stack.Path("bin", "lab"), "down", "--dir", l.Dir, "--keep-logs")
	return err
}

// Stop takes a component of the control plane away, kube-apiserver for example; Start brings it back.
func (l *Lab) Stop(ctx context.Context, component string) error {
	_, err := l.run(ctx, stack.Path("bin", "lab"), "stop", component, "--dir", l.Dir)
	return err
}

// Start brings a stopped component back, as it was.
func (l *Lab) Start(ctx context.Context, component string) error {
	_, err := l.run(ctx, stack.Path("bin", "lab"), "start", component, "--dir", l.Dir)
	return err
}

// Machine describes a machine.
type Machine struct {
	// Name is the node's name.
	Name string
	// Labels are the node's.
	Labels map[string]string
	// Board and GPUs are what the machine has; MIG is true where MIG mode is on at first.
	Board string
	GPUs  int
	MIG   bool
	// Divided is how many GPUs it has besides whose MIG mode is on.
	Divided int
	// StateDisk is the size in MiB of a disk of its own for Sluice's state; 0 is none.
	StateDisk int
	// DriverVersion is the fake driver's; "" is its default.
	DriverVersion string
	// Limits is where that driver keeps the memory limits of cgroups, dmem or misc; "" where it has none.
	Limits string
	// Images are archives of images that it has from the start.
	Images []string
	// Arguments are further ones of `lab machine up`.
	Arguments []string
}

// Add starts a machine and returns when its node is ready.
func (l *Lab) Add(ctx context.Context, m Machine) error {
	args := []string{"--fakegpu", stack.Path("test", "fakegpu", "build", "fakegpu"), "--board", m.Board, "--gpus", strconv.Itoa(m.GPUs)}
	if m.MIG {
		args = append(args, "--mig=on")
	}
	if m.Divided > 0 {
		args = append(args, "--boards-extra", fmt.Sprintf("%s:%d:on", m.Board, m.Divided))
	}
	if m.StateDisk > 0 {
		args = append(args, "--state-disk", strconv.Itoa(m.StateDisk))
	}
	if m.DriverVersion != "" {
		args = append(args, "--driver-version", m.DriverVersion)
	}
	if m.Limits != "" {
		args = append(args, "--limits", m.Limits)
	}
	for name, value := range m.Labels {
		args = append(args, "--labels", name+"="+value)
	}
	for _, image := range m.Images {
		args = append(args, "--image", image)
	}
	args = append(args, m.Arguments...)
	_, err := l.Machine(ctx, "up", m.Name, args...)
	return err
}

// Machine runs a verb of `lab machine` on a machine: down, reboot, image, kubelet-kill, kubelet-start, kubelet-restart, the
// same of containerd, exec, ... and returns what it prints.
func (l *Lab) Machine(ctx context.Context, verb, name string, args ...string) (string, error) {
	return l.run(ctx, stack.Path("bin", "lab"), append([]string{"machine", verb, "--dir", l.Dir, "--name", name}, args...)...)
}

// On runs a program of the host's on a machine, in all its namespaces, and returns its output.
func (l *Lab) On(ctx context.Context, machine string, command ...string) (string, error) {
	return l.Machine(ctx, "exec", machine, append([]string{"--"}, command...)...)
}

// FakeGPU runs a command of the fake GPU's CLI on a machine's GPUs and returns its output.
func (l *Lab) FakeGPU(ctx context.Context, machine string, args ...string) (string, error) {
	args = append([]string{args[0], "--state", filepath.Join(l.Dir, "machines", machine, "gpu.state")}, args[1:]...)
	return l.run(ctx, stack.Path("test", "fakegpu", "build", "fakegpu"), args...)
}

// Kubectl runs kubectl as the administrator and returns its standard output.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.run(ctx, filepath.Join(l.Binaries, "kubectl"), args...)
}

// Apply applies objects in YAML.
func (l *Lab) Apply(ctx context.Context, yaml string) error {
	_, err := l.runStdin(ctx, strings.NewReader(yaml), filepath.Join(l.Binaries, "kubectl"), "apply", "-f", "-")
	return err
}

func (l *Lab) run(ctx context.Context, program string, args ...string) (string, error) {
	return l.runStdin(ctx, nil, program, args...)
}

// runStdin runs a program as the cluster's administrator and returns its standard output; what it says besides goes to the log
// and into the error.
func (l *Lab) runStdin(ctx context.Context, stdin io.Reader, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig)
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, l.log)
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
