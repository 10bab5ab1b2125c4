// SPDX-License-Identifier: Apache-2.0

// Package agentproc runs the real node agent as a process of its own over a simulated node, speaks to it as kubelet does,
// and can have it killed just before any of its changes to a file. The API server is a stub that knows claims and nothing
// else: what the agent prepares must not depend on more.
package agentproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Binaries are what the processes are made of.
type Binaries struct{ Agent, KillAt, StartHook string }

// built is the directory of the binaries; "" before there is one.
var built string

var build = sync.OnceValues(func() (Binaries, error) {
	dir, err := os.MkdirTemp("", "sluice-agentproc-")
	if err != nil {
		return Binaries{}, fmt.Errorf("making a directory for the binaries: %w", err)
	}
	built = dir
	b := Binaries{Agent: filepath.Join(dir, "node-agent"), KillAt: filepath.Join(dir, "killat"), StartHook: filepath.Join(dir, "sluice-cdi-hook")}
	for _, args := range [][]string{
		{"go", "build", "-o", b.Agent, "./cmd/node-agent"},
		{"go", "build", "-o", b.StartHook, "./cmd/sluice-cdi-hook"},
		{"make", "--no-print-directory", "-s", "-C", "interceptor"},
		{compiler(), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", b.KillAt, "test/killat/killat.c"},
	} {
		cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // fixed commands, shared by all tests
		cmd.Dir = repository()
		if out, err := cmd.CombinedOutput(); err != nil {
			return Binaries{}, errors.Join(fmt.Errorf("%v: %w: %s", args, err, out), os.RemoveAll(dir))
		}
	}
	return b, nil
})

// Build builds the agent and killat, once for all tests of a package.
func Build(tb testing.TB) Binaries {
	tb.Helper()
	b, err := build()
	if err != nil {
		tb.Fatalf("building the agent: %v", err)
	}
	return b
}

// Library is the library that agents place.
func Library() string { return filepath.Join(repository(), "interceptor", "build", "libsluice.so") }

// Clean removes what Build built; a package has it done when its tests are over.
func Clean() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}

func compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "cc"
}

func repository() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..", "..")
}
