// SPDX-License-Identifier: Apache-2.0

// Command mps runs the node agent's door to MPS on the real driver of this machine, a step a call, for test/gpu/mps.sh.
//
//	gpu-mps --dir DIR serve NAME MIB PERCENT   has the first GPU's daemon serve a client, and prints what the client needs
//	gpu-mps --dir DIR state                    prints what the daemon says, and the processes that NVML lists
//	gpu-mps --dir DIR keep NAME MIB PERCENT    brings the daemon in line with one client
//	gpu-mps --dir DIR stop                     brings it in line with none
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/node-agent/mps"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// shareDir is where the client's share would be in its container.
const shareDir = "/run/mps-test"

func main() {
	options := mps.Options{Proc: "/proc"}
	pflag.StringVar(&options.Dir, "dir", "", "Directory of daemons.")
	pflag.StringVar(&options.DriverRoot, "driver-root", "/", "Directory in which the driver is installed.")
	pflag.StringVar(&options.Cgroup, "cgroup", "", "Directory of cgroups.")
	pflag.Parse()
	if err := run(context.Background(), options, pflag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, options mps.Options, args []string) error {
	library, err := nvml.FindLibrary(options.DriverRoot)
	if err != nil {
		return err
	}
	hardware, err := nvml.Open(library)
	if err != nil {
		return err
	}
	defer hardware.Close()
	look, err := hardware.Look(ctx)
	if err != nil {
		return err
	}
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{})
	door, uuid := mps.New(options, clock.RealClock{}, log), look.GPUs[0].UUID
	switch {
	case len(args) == 1 && args[0] == "state":
		return state(ctx, door, hardware, uuid)
	case len(args) == 1 && args[0] == "stop":
		return door.Keep(ctx, nil)
	case len(args) == 4:
		c := mps.Client{ClaimUID: args[1], Device: uuid, Driver: look.DriverVersion}
		c.MemoryMiB, err = strconv.ParseInt(args[2], 10, 64)
		if err == nil {
			c.Percent, err = strconv.ParseInt(args[3], 10, 64)
		}
		if err != nil {
			return err
		}
		if args[0] == "keep" {
			return door.Keep(ctx, []mps.Client{c})
		}
		return serve(ctx, door, c)
	default:
		return errors.New("want serve, state, keep or stop")
	}
}

func serve(ctx context.Context, door *mps.Door, c mps.Client) error {
	if err := door.Serve(ctx, c); err != nil {
		return err
	}
	access, err := door.Access(c, shareDir)
	if err != nil {
		return err
	}
	for _, variable := range access.Env {
		fmt.Println("env", variable)
	}
	for _, m := range access.Mounts {
		fmt.Println("mount", m.HostPath, m.ContainerPath)
	}
	return nil
}

func state(ctx context.Context, door *mps.Door, hardware *nvml.Door, uuid string) error {
	s, err := door.State(ctx, uuid)
	if err != nil {
		return err
	}
	fmt.Printf("servers %v\nclients %v\nfaulty %v\nmultiuser %v\nmarked %v\n", s.Servers, s.Clients, s.Faulty, s.MultiUser, s.Marked)
	found, err := hardware.Holders(ctx, uuid)
	if err != nil {
		return err
	}
	for _, h := range found {
		fmt.Println("nvml", h.PID)
	}
	return nil
}
