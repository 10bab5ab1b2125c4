// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outcome is all that somebody sees of a program.
type outcome struct {
	Out, Errors string
	Status      int
}

func (n *node) outcome(t *testing.T, environment []string, arguments ...string) outcome {
	t.Helper()
	command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
	command.Env = append(environment, "HOME="+filepath.Dir(n.state))
	command.Dir = filepath.Dir(n.state)
	var out, errors bytes.Buffer
	command.Stdout, command.Stderr = &out, &errors
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatalf("starting %v: %v", arguments, err)
	}
	return outcome{Out: out.String(), Errors: errors.String(), Status: command.ProcessState.ExitCode()}
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
}

// Programs that never use CUDA behave under the library as they do without it.
func TestProgramsBehaveAsWithout(t *testing.T) {
	t.Parallel()
	const script = `x=$(echo a | tr a b); printf '%s\n' "$x"; umask; ulimit -n; (exit 3) || echo $?; ls /proc/self/fd | wc -l; exit 7`
	const nginx = `events {} http { server { listen 127.0.0.1:65123; } access_log off; }`
	tests := []struct {
		name      string
		needs     string
		arguments []string
		want      int // status
	}{
		{name: "sh", needs: "sh", arguments: []string{"sh", "-c", script}, want: 7},
		{name: "bash", needs: "bash", arguments: []string{"bash", "-c", script + ` 2>&1`}, want: 7},
		{name: "env -i", needs: "env", arguments: []string{"env", "-i", "sh", "-c", "env; exit 5"}, want: 5},
		{name: "python3", needs: "python3", arguments: []string{"python3", "-c", "import os, subprocess, threading, ctypes; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join(); print(subprocess.run(['sh', '-c', 'exit 4']).returncode, len(os.listdir('/proc/self/fd'))); raise SystemExit(9)"}, want: 9},
		{name: "node", needs: "node", arguments: []string{"node", "-e", "require('child_process').execSync('true'); console.log('node'); process.exit(6)"}, want: 6},
		{name: "nginx", needs: "nginx", arguments: []string{"nginx", "-t", "-q", "-p", ".", "-e", "stderr", "-g", "pid nginx.pid;", "-c", "nginx.conf"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			needs(t, tc.needs)
			n := newNode(t, 1)
			write(t, filepath.Dir(n.state), "nginx.conf", nginx)
			want := n.outcome(t, n.environment(t, ""), tc.arguments...)
			got := n.outcome(t, n.environment(t, limitText), tc.arguments...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without and with the library (-want +got):\n%s", diff)
			}
			if got.Status != tc.want {
				t.Errorf("status %d, want %d: %s", got.Status, tc.want, got.Errors)
			}
			if _, err := os.Stat(n.ledgerDir()); !os.IsNotExist(err) {
				t.Errorf("a program that does not use CUDA made %s (%v)", n.ledgerDir(), err)
			}
		})
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatalf("writing %s: %v", name, err)
	}
}

// Programs built with the sanitizers of both compilers start, and still find what they are for.
func TestSanitizedPrograms(t *testing.T) {
	t.Parallel()
	const source = `#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static int shared;
static void *work(void *unused) { (void)unused; shared++; return NULL; }
int main(int count, char **arguments) {
    pthread_t thread;
    char *volatile memory = malloc(8);
    (void)arguments;
    pthread_create(&thread, NULL, work, NULL);
    if (count == 2) shared++;
    pthread_join(thread, NULL);
    puts("begun");
    if (count == 3) memory[8] = 1;
    if (count == 4) shared = 0x7fffffff, shared += count;
    free(memory);
    return 0;
}
`
	tests := []struct {
		compiler, sanitizer string
		fault               int // as many arguments bring out what the sanitizer finds
		finds               string
	}{
		{compiler: "gcc", sanitizer: "address", fault: 2, finds: "heap-buffer-overflow"},
		{compiler: "gcc", sanitizer: "thread", fault: 1, finds: "data race"},
		{compiler: "gcc", sanitizer: "undefined", fault: 3, finds: "signed integer overflow"},
		{compiler: "clang", sanitizer: "address", fault: 2, finds: "heap-buffer-overflow"},
		{compiler: "clang", sanitizer: "thread", fault: 1, finds: "data race"},
		{compiler: "clang", sanitizer: "undefined", fault: 3, finds: "signed integer overflow"},
	}
	for _, tc := range tests {
		t.Run(tc.compiler+" "+tc.sanitizer, func(t *testing.T) {
			t.Parallel()
			needs(t, tc.compiler)
			n := newNode(t, 1)
			write(t, filepath.Dir(n.state), "program.c", source)
			built := n.outcome(t, n.environment(t, ""), tc.compiler, "-g", "-pthread", "-fsanitize="+tc.sanitizer, "-o", "program", "program.c")
			if strings.Contains(built.Errors, "libclang_rt") {
				t.Skip("clang's own sanitizer libraries (libclang-rt) are not installed")
			}
			if built.Status != 0 {
				t.Fatalf("building: %s", built.Errors)
			}
			program := filepath.Join(filepath.Dir(n.state), "program")
			if got := n.outcome(t, n.environment(t, limitText), program); got != (outcome{Out: "begun\n"}) {
				t.Errorf("without a fault: %+v", got)
			}
			faulty := append([]string{program}, slices.Repeat([]string{"x"}, tc.fault)...)
			want := n.outcome(t, n.environment(t, ""), faulty...)
			got := n.outcome(t, n.environment(t, limitText), faulty...)
			if got.Status != want.Status || !strings.Contains(got.Errors, tc.finds) || !strings.Contains(want.Errors, tc.finds) {
				t.Errorf("with a fault: %+v, without the library %+v", got, want)
			}
		})
	}
}

// A process that does not use CUDA is as it would be without the library: signals, umask, environment, descriptors, mappings,
// and after loading not one system call more.
func TestSurroundingsStay(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	program := built(t, "interceptor/build/tests/tools/surroundings")
	want := n.outcome(t, n.environment(t, ""), program)
	got := n.outcome(t, n.environment(t, limitText), program)
	if diff := cmp.Diff(want, got); diff != "" || want.Status != 0 {
		t.Errorf("without and with the library (-want +got):\n%s", diff)
	}
	needs(t, "strace")
	if diff := cmp.Diff(n.calls(t, ""), n.calls(t, limitText)); diff != "" {
		t.Errorf("system calls without and with the library (-want +got):\n%s", diff)
	}
}

// calls are the system calls of a small program, once its libraries are mapped; those that seal a library's tables left out.
func (n *node) calls(t *testing.T, limit string) []string {
	t.Helper()
	trace := filepath.Join(filepath.Dir(n.state), "trace"+limit)
	arguments := []string{"strace", "-o", trace}
	for _, variable := range n.environment(t, limit) {
		if strings.HasPrefix(variable, "LD_PRELOAD=") || strings.HasPrefix(variable, "SLUICE_") {
			arguments = append(arguments, "-E", variable)
		}
	}
	if got := n.outcome(t, n.environment(t, ""), append(arguments, "/bin/true")...); got != (outcome{}) {
		t.Fatalf("strace: %+v", got)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatalf("reading the trace: %v", err)
	}
	_, after, found := strings.Cut(string(text), "set_tid_address(")
	if !found {
		t.Fatalf("the trace has no end of loading:\n%s", text)
	}
	var names []string
	for line := range strings.Lines(after) {
		if name, _, is := strings.Cut(line, "("); is && name != "mprotect" {
			names = append(names, name)
		}
	}
	return names
}

// A debugger starts programs under the library, attaches to them, and they go on.
func TestDebugger(t *testing.T) {
	t.Parallel()
	needs(t, "gdb")
	n := newNode(t, 1)
	program := built(t, "interceptor/build/tests/dlsym/linear")
	arguments := []string{"gdb", "-nx", "-batch", "-ex", "set startup-with-shell off", "-ex", "set debuginfod enabled off"}
	for _, variable := range n.environment(t, limitText) {
		name, value, _ := strings.Cut(variable, "=")
		arguments = append(arguments, "-ex", fmt.Sprintf("set environment %s %s", name, value))
	}
	arguments = append(arguments, "-ex", "break tell", "-ex", "run", "-ex", "print way.piece", "-ex", "backtrace", "-ex", "delete", "-ex", "continue", "--args", program, "2")
	got := n.outcome(t, n.environment(t, ""), arguments...)
	// Its input is at its end, so the program ends well at its first step.
	for _, want := range []string{"in main (", "exited normally"} {
		if got.Status != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("started by gdb: status %d, want %q in\n%s%s", got.Status, want, got.Out, got.Errors)
		}
	}
	p := n.start(t, limitText, "dlsym/linear", "2")
	if s, _ := p.next(t); s.Step != "ready" {
		t.Fatalf("the program is at %q", s.Step)
	}
	got = n.outcome(t, n.environment(t, ""), "gdb", "-nx", "-batch", "-p", strconv.Itoa(p.command.Process.Pid), "-ex", "backtrace", "-ex", "print way.piece", "-ex", "detach")
	if got.Status != 0 || !strings.Contains(got.Out, "in main (") || !strings.Contains(got.Out, "= 268435456") {
		t.Errorf("attached by gdb: status %d\n%s%s", got.Status, got.Out, got.Errors)
	}
	for more := true; more; {
		p.resume(t)
		_, more = p.next(t)
	}
	p.end(t)
}

// A program with privileges starts under the library and obeys nothing of its caller's environment.
func TestPrivilegedProgram(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a program setuid root")
	}
	n := newNode(t, 1)
	environment := append(n.environment(t, ""), "SLUICE_MEMORY_LIMIT=1Mi", "SLUICE_GROUP="+n.group, "SLUICE_LOG=debug")
	got := n.outcome(t, environment, built(t, "interceptor/build/tests/tools/privileged"), built(t, "test/fakegpu/build"), library)
	want := outcome{Out: fmt.Sprintf("{\"secure\":1,\"uid\":0,\"error\":0,\"total\":%d}\n", 143155*mib)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
