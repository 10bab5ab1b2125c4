// SPDX-License-Identifier: Apache-2.0

package enforcement_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/test/framework/container"
)

// step is a line that a program prints before it waits to be told to go on.
type step struct {
	Step        string
	Pieces      int
	Error       int
	Call        string
	Total       uint64
	DeviceTotal uint64
}

// program is a CUDA program in a container.
type program struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan step
	stderr *bytes.Buffer
}

// run starts a program that takes pieces of 256 MiB until it is refused, at most as many as the argument says, gives them
// back and takes them again.
func run(t *testing.T, plan container.Plan, arguments ...string) *program {
	t.Helper()
	plan.Args = append([]string{repository("interceptor", "build", "tests", "link", "linear")}, arguments...)
	return start(t, plan)
}

// start starts a plan's program, which speaks as such programs do.
func start(t *testing.T, plan container.Plan) *program {
	t.Helper()
	cmd, err := container.Command(plan)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: cmd, lines: make(chan step), stderr: &bytes.Buffer{}}
	cmd.Stderr = p.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			var s step
			if err := json.Unmarshal(scanner.Bytes(), &s); err != nil {
				s.Step = scanner.Text()
			}
			p.lines <- s
		}
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// kill ends a program as its memory limit would.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	for range p.lines { // until it has closed its output
		continue
	}
	_ = p.cmd.Wait()
}

// arrives waits for the next step, which must be the one named.
func (p *program) arrives(t *testing.T, name string) step {
	t.Helper()
	select {
	case s, open := <-p.lines:
		if !open {
			err := p.cmd.Wait()
			t.Fatalf("the program ended before %q: %v\n%s", name, err, p.stderr)
		}
		if s.Step != name {
			t.Fatalf("the program says %+v, want %q\n%s", s, name, p.stderr)
		}
		return s
	case <-time.After(time.Minute):
		t.Fatalf("the program does not come to %q", name)
		return step{}
	}
}

// next tells the program to go on and waits for the next step.
func (p *program) next(t *testing.T, name string) step {
	t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatal(err)
	}
	return p.arrives(t, name)
}
