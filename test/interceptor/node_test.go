// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	mib = uint64(1) << 20
	// What a context costs on the fake GPU, as on an H200.
	contextBytes = 518 * mib
	// The longest that one program may run.
	programTimeout = 3 * time.Minute
)

var repository = filepath.Join("..", "..")

func TestMain(m *testing.M) {
	for _, dir := range []string{"test/fakegpu", "interceptor", "interceptor/tests/programs"} {
		build := exec.CommandContext(context.Background(), "make", "--no-print-directory", "-s", "-C", filepath.Join(repository, dir))
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", dir, err, out)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

// arbiterProgram is the agent's arbiter alone, built for these tests.
var arbiterProgram string

// library is a copy of the one under test, so that a build beside the tests changes nothing for them.
var library string

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "libsluice")
	if err != nil {
		fmt.Fprintf(os.Stderr, "making room for the library: %v\n", err)
		return 1
	}
	if err := copyLibrary(dir); err != nil {
		fmt.Fprintf(os.Stderr, "copying the library: %v\n", err)
		return 1
	}
	library = filepath.Join(dir, "libsluice.so")
	arbiterProgram = filepath.Join(dir, "arbiter")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", arbiterProgram, "../gpu/arbiter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the arbiter: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintf(os.Stderr, "removing the copy of the library: %v\n", err)
	}
	return code
}

func copyLibrary(dir string) error {
	content, err := os.ReadFile(filepath.Join(repository, "interceptor/build/libsluice.so"))
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	return errors.Join(root.WriteFile("libsluice.so", content, 0o755), root.Close())
}

func built(t *testing.T, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{repository}, parts...)...))
	if err != nil {
		t.Fatalf("finding %v: %v", parts, err)
	}
	return path
}

// node is one fake node with H200 GPUs, seen from outside any tenant.
type node struct {
	state string
	group string
}

func newNode(t *testing.T, gpus int) *node {
	t.Helper()
	n := &node{state: filepath.Join(t.TempDir(), "state"), group: fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano())}
	n.fakegpu(t, "create", "--board", "h200-141gb", "--gpus", fmt.Sprint(gpus))
	t.Cleanup(func() {
		if err := os.RemoveAll(n.ledgerDir()); err != nil {
			t.Errorf("removing the ledger: %v", err)
		}
	})
	return n
}

func (n *node) fakegpu(t *testing.T, arguments ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), built(t, "test/fakegpu/build/fakegpu"), append(arguments, "--state", n.state)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("fakegpu %v: %v\n%s", arguments, err, stderr.String())
	}
	return out
}

type process struct {
	PID      int    `json:"pid"`
	Bytes    uint64 `json:"bytes"`
	Contexts int    `json:"contexts"`
}

type gpu struct {
	UUID      string    `json:"uuid"`
	UsedBytes uint64    `json:"usedBytes"`
	Processes []process `json:"processes"`
}

// seen is what NVML tells a reader that has no library loaded.
func (n *node) seen(t *testing.T, index int) gpu {
	t.Helper()
	var shown struct {
		GPUs []gpu `json:"gpus"`
	}
	if err := json.Unmarshal(n.fakegpu(t, "show", "--json"), &shown); err != nil {
		t.Fatalf("reading what fakegpu shows: %v", err)
	}
	return shown.GPUs[index]
}

func (n *node) ledgerDir() string { return fmt.Sprintf("/dev/shm/sluice-%d-%s", os.Geteuid(), n.group) }

// ledger is what a usage file says in sum.
type ledger struct {
	Held            uint64 `json:"held"`
	Credit          uint64 `json:"credit"`
	Orphan          uint64 `json:"orphan"`
	Limit           uint64 `json:"limit"`
	Dead            uint64 `json:"dead"`
	Slots           int    `json:"slots"`
	Refused         uint64 `json:"refused"`
	RefusedByDriver uint64 `json:"refusedByDriver"`
	UnknownVariants uint64 `json:"unknownVariants"`
	StartCPUP99Ns   uint64 `json:"startCpuP99Ns"`
	LockWaitP99Ns   uint64 `json:"lockWaitP99Ns"`
}

func (n *node) ledger(t *testing.T) ledger {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.ledgerDir(), "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the share has %d usage files in %s, want 1 (%v)", len(files), n.ledgerDir(), err)
	}
	return readLedger(t, files[0])
}

func readLedger(t *testing.T, file string) ledger {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), built(t, "interceptor/build/tests/tools/ledger"), file).Output()
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	var got ledger
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("reading what ledger prints: %v", err)
	}
	return got
}

// environment of a program on the node: native, or under the library with that limit.
func (n *node) environment(t *testing.T, limit string) []string {
	t.Helper()
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"FAKEGPU_STATE=" + n.state,
		"LD_LIBRARY_PATH=" + built(t, "test/fakegpu/build"),
	}
	if limit == "" {
		return env
	}
	return append(env,
		"LD_PRELOAD="+library,
		"SLUICE_MEMORY_LIMIT="+limit,
		"SLUICE_CONTEXT_MEMORY=518Mi",
		"SLUICE_GROUP="+n.group)
}

// output runs a program to its end and decodes the one line of JSON that it prints.
func (n *node) output(t *testing.T, limit string, into any, program string, arguments ...string) {
	t.Helper()
	out := n.text(t, limit, program, arguments...)
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%s printed %q: %v", program, out, err)
	}
}

func (n *node) text(t *testing.T, limit, program string, arguments ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, built(t, "interceptor/build/tests", program), arguments...)
	command.Env = n.environment(t, limit)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", program, arguments, err, out, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Errorf("%s wrote to standard error: %s", program, stderr.String())
	}
	return out
}

// step is one line of a program that waits to be looked at.
type step struct {
	Step        string `json:"step"`
	By          int    `json:"by"`
	Pieces      int    `json:"pieces"`
	Bytes       uint64 `json:"bytes"`
	Error       int    `json:"error"`
	Free        uint64 `json:"free"`
	Total       uint64 `json:"total"`
	DeviceTotal uint64 `json:"deviceTotal"`
	Call        string `json:"call"`
}

// program is a running one that goes on step by step.
type program struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	stderr  *bytes.Buffer
}

func (n *node) start(t *testing.T, limit, name string, arguments ...string) *program {
	t.Helper()
	return n.startWith(t, n.environment(t, limit), nil, name, arguments...)
}

func (n *node) startWith(t *testing.T, environment, extra []string, name string, arguments ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, built(t, "interceptor/build/tests", name), arguments...)
	command.Env = append(environment, extra...)
	p := &program{command: command, stderr: &bytes.Buffer{}}
	command.Stderr = p.stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatalf("opening the input of %s: %v", name, err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("opening the output of %s: %v", name, err)
	}
	p.in, p.out = in, bufio.NewScanner(out)
	if err := command.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	return p
}

// next waits for the next step; false when the program has ended.
func (p *program) next(t *testing.T) (step, bool) {
	t.Helper()
	if !p.out.Scan() {
		return step{}, false
	}
	var s step
	if err := json.Unmarshal(p.out.Bytes(), &s); err != nil {
		t.Fatalf("the program printed %q: %v", p.out.Text(), err)
	}
	if s.Step == "failed" {
		t.Fatalf("%s gave error %d", s.Call, s.Error)
	}
	return s, true
}

func (p *program) resume(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatalf("waking the program: %v", err)
	}
}

// end waits for the program's end, which has to be a good one, and a silent one.
func (p *program) end(t *testing.T) {
	t.Helper()
	if err := p.command.Wait(); err != nil {
		t.Errorf("the program ended with %v: %s", err, p.stderr.String())
	}
	if text := strings.TrimSpace(p.stderr.String()); text != "" {
		t.Errorf("the program wrote to standard error: %s", text)
	}
}

// stop ends a program that is not needed any more: it ends when its input does.
func (p *program) stop(t *testing.T) {
	t.Helper()
	if err := p.in.Close(); err != nil {
		t.Errorf("closing the program's input: %v", err)
	}
	p.end(t)
}
