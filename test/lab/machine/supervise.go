// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-gpu/sluice/test/lab/children"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
	"github.com/sluice-gpu/sluice/test/lab/process"
	"github.com/sluice-gpu/sluice/test/lab/relay"
)

// The programs of a machine.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
	// locate tells CUDA programs their cgroups, where the fake driver has limits for these.
	locate = "fakegpu-locate"
)

// Supervise runs containerd and kubelet until the context ends, and carries connections in and out of the machine's network.
func Supervise(ctx context.Context, lab cluster.Dir, name string) error {
	state, err := Load(lab, name)
	if err != nil {
		return err
	}
	into, err := relay.Listen(state.Dir.dial())
	if err != nil {
		return err
	}
	// In-cluster clients, kubelet too, find the API server at the address of its Service.
	out, err := net.Listen("tcp", net.JoinHostPort(serviceAddress, "443"))
	if err != nil {
		return fmt.Errorf("listening at the address of the kubernetes Service: %w", err)
	}
	if err := os.Remove(state.Dir.control()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an old socket: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var errs [3]error
	for i, run := range []func() error{
		func() error { return relay.Serve(ctx, into, relay.Connect) },
		func() error { return relay.Serve(ctx, out, relay.Forward("unix", RelaySocket(lab))) },
		func() error {
			set := children.New("/run/lab-processes.json", []string{locate, Containerd, Kubelet}, programs(state))
			return set.Run(ctx, state.Dir.control())
		},
	} {
		all.Go(func() {
			defer cancel()
			errs[i] = run()
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// programs says what runs on a machine; what ends by itself starts again, as an init system would have it.
func programs(s *State) map[string]*children.Child {
	env := []string{
		"PATH=" + s.Spec.Runtime + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TMPDIR=/tmp",
	}
	all := map[string]*children.Child{
		Containerd: {Restart: true, Spec: process.Spec{
			Path: filepath.Join(s.Spec.Runtime, "containerd"), Env: env, Log: filepath.Join(s.Dir.Logs(), Containerd+".log"),
			Args: []string{"--config", s.Dir.path("containerd.toml")},
		}},
		Kubelet: {Restart: true, Spec: process.Spec{
			Path: filepath.Join(s.Spec.Programs, "kubelet"), Env: env, Log: filepath.Join(s.Dir.Logs(), Kubelet+".log"),
			Args: []string{
				"--config=" + s.Dir.path("kubelet.json"), "--kubeconfig=" + s.Dir.kubeconfig(),
				"--hostname-override=" + s.Spec.Name, "--node-ip=" + s.Spec.NodeIP, "--v=2",
			},
		}},
	}
	if s.Spec.GPUs.Limits != "" {
		all[locate] = &children.Child{Restart: true, Spec: process.Spec{
			Path: s.Spec.GPUs.FakeGPU, Env: env, Log: filepath.Join(s.Dir.Logs(), locate+".log"), Args: []string{"locate", "--state", s.Dir.GPUState()},
		}}
	}
	return all
}

// RelaySocket leads to the API server from wherever the lab's directory is seen; EgressSocket from the API server to the
// machines.
func RelaySocket(lab cluster.Dir) string { return filepath.Join(string(lab), "relay.sock") }

// Relay serves a lab's two sockets until the context ends.
func Relay(ctx context.Context, lab cluster.Dir) error {
	state, err := lab.Load()
	if err != nil {
		return err
	}
	toServer, err := relay.Listen(RelaySocket(lab))
	if err != nil {
		return err
	}
	toMachines, err := relay.Listen(lab.EgressSocket())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 2)
	server := fmt.Sprintf("127.0.0.1:%d", state.Ports.APIServer)
	go func() { served <- relay.Serve(ctx, toServer, relay.Forward("tcp", server)) }()
	go func() { served <- relay.Serve(ctx, toMachines, relay.Choose(finder(lab))) }()
	first := <-served
	cancel()
	return errors.Join(first, <-served)
}
