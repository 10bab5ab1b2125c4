// SPDX-License-Identifier: Apache-2.0

// Package fakenode gives a test a node with simulated GPUs: it builds test/fakegpu, makes a state and a driver root in the
// test's directory, and drives the fake's command line. What is under test loads the fake libraries by their real names.
//
// MIG needs /proc/driver/nvidia-caps, whose path is fixed. A package whose tests need it runs them through Main, in a
// mount namespace of their own.
package fakenode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// stateVariable tells the fake libraries where the node's state is.
const stateVariable = "FAKEGPU_STATE"

// Boards are GPUs of one kind, in the order in which they are added to a node.
type Boards struct {
	// Board is one of `fakegpu boards`, such as h100-80gb.
	Board string
	// Count is how many.
	Count int
	// MIG switches MIG mode on.
	MIG bool
}

// Node is a simulated node.
type Node struct {
	// State is the file that the fake libraries share; the environment of this process names it already.
	State string
	// Root is the driver root, and the root of /dev.
	Root string
	// Library is the fake libnvidia-ml.so.1 below Root.
	Library string

	cli string
}

// Driver is NVIDIA's driver on a node.
type Driver struct {
	// Version is the driver's; "" is the fake's own.
	Version string
	// Cgroups is the node's cgroup v2 file system, and Limits where the driver keeps the memory limits of cgroups, dmem or misc.
	Cgroups, Limits string
}

func (d Driver) flags() []string {
	var flags []string
	for flag, value := range map[string]string{"--driver": d.Version, "--cgroups": d.Cgroups, "--limits": d.Limits} {
		if value != "" {
			flags = append(flags, flag, value)
		}
	}
	return flags
}

// New makes a node with the given boards. It belongs to the test, which must not run in parallel with others: the fake
// libraries find their state through this process's environment.
func New(tb testing.TB, boards ...Boards) *Node {
	tb.Helper()
	return With(tb, Driver{}, boards...)
}

// With makes a node with another driver.
func With(tb testing.TB, driver Driver, boards ...Boards) *Node {
	tb.Helper()
	build := Build(tb)
	dir := tb.TempDir()
	n := &Node{
		State: filepath.Join(dir, "state"),
		Root:  filepath.Join(dir, "root"),
		cli:   filepath.Join(build, "fakegpu"),
	}
	n.Library = filepath.Join(n.Root, "usr", "lib64", "libnvidia-ml.so.1")
	// The same UUIDs in every run: a failure can be compared with the one before.
	seed := strconv.Itoa(len(tb.Name())) + tb.Name()
	for i, b := range boards {
		mode := "off"
		if b.MIG {
			mode = "on"
		}
		if i == 0 {
			create := []string{"--board", b.Board, "--gpus", strconv.Itoa(b.Count), "--mig", mode, "--seed", seed}
			n.CLI(tb, "create", append(create, driver.flags()...)...)
		} else {
			n.CLI(tb, "add", "--board", b.Board, "--gpus", strconv.Itoa(b.Count), "--mig", mode)
		}
	}
	n.CLI(tb, "root", "--root", n.Root, "--libs", build)
	if err := n.settle(tb); err != nil {
		tb.Fatalf("settling the node in its mount namespace: %v", err)
	}
	tb.Setenv(stateVariable, n.State)
	return n
}

// Environment is what a process of this node needs beyond its own.
func (n *Node) Environment() []string {
	return []string{stateVariable + "=" + n.State}
}

// CLI runs a fakegpu command on the node's state and returns what it prints.
func (n *Node) CLI(tb testing.TB, command string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), n.cli, append([]string{command, "--state", n.State}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = append(out, exit.Stderr...)
		}
		tb.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// Fault makes the next call of an NVML function on a GPU answer with an error, such as NVML_ERROR_UNKNOWN.
func (n *Node) Fault(tb testing.TB, call, answer string, gpu int) {
	tb.Helper()
	n.CLI(tb, "fault", "--call", call, "--return", answer, "--gpu", strconv.Itoa(gpu))
}

// Seen is what fakegpu shows of a node.
type Seen struct {
	GPUs []SeenGPU `json:"gpus"`
	// Limits are the memory limits of cgroups.
	Limits []SeenLimit `json:"limits"`
}

// SeenLimit is what a cgroup is limited to on a GPU, in bytes.
type SeenLimit struct {
	GPU    int    `json:"gpu"`
	Cgroup string `json:"cgroup"`
	Soft   uint64 `json:"soft"`
	Hard   uint64 `json:"hard"`
	// Gone is true where the cgroup is no more and its reservation is left.
	Gone bool `json:"gone"`
	// UsedBytes are what its processes hold.
	UsedBytes uint64 `json:"usedBytes"`
}

// SeenGPU is one GPU as the fake hardware knows it.
type SeenGPU struct {
	Minor   int    `json:"minor"`
	UUID    string `json:"uuid"`
	MIGMode struct {
		Current bool `json:"current"`
		Pending bool `json:"pending"`
	} `json:"migMode"`
	// UsedBytes are what processes hold of it.
	UsedBytes uint64         `json:"usedBytes"`
	Instances []SeenInstance `json:"instances"`
}

// SeenInstance is one MIG instance as the fake hardware knows it.
type SeenInstance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	GI      int    `json:"gi"`
	CI      *int   `json:"ci"`
	UUID    string `json:"uuid"`
}

// Show reads the hardware's own view, past the library.
func (n *Node) Show(tb testing.TB) Seen {
	tb.Helper()
	var seen Seen
	if err := json.Unmarshal([]byte(n.CLI(tb, "show", "--json")), &seen); err != nil {
		tb.Fatalf("reading what fakegpu shows: %v", err)
	}
	return seen
}

// built remembers that this process has built the fake.
var built = sync.OnceValues(build)

// Build builds test/fakegpu once a process and returns the directory of its libraries and its command.
func Build(tb testing.TB) string {
	tb.Helper()
	dir, err := built()
	if err != nil {
		tb.Fatalf("building the fake GPU: %v", err)
	}
	return dir
}

// build runs make under a lock, because the tests of several packages run at the same time.
func build() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "test", "fakegpu")
	lock, err := os.OpenFile(filepath.Join(source, "Makefile"), os.O_RDONLY, 0)
	if err != nil {
		return "", fmt.Errorf("opening the lock: %w", err)
	}
	defer lock.Close() // Which gives the lock back.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("waiting for the lock: %w", err)
	}
	if out, err := exec.Command("make", "-s", "-C", source).CombinedOutput(); err != nil { //nolint:noctx // shared by all tests of the process, so it belongs to none
		return "", fmt.Errorf("make -C %s: %w\n%s", source, err, out)
	}
	return filepath.Join(source, "build"), nil
}

// moduleRoot is the directory of the go.mod above the working directory, which go test sets to the package's.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/sluice-gpu/sluice\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no module above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}
