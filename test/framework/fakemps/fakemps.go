// SPDX-License-Identifier: Apache-2.0

// Package fakemps gives a test's node a control program of MPS, and clients.
package fakemps

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// answerTime is how long a client may take to get its server.
const answerTime = 20 * time.Second

// Program is where the program is below a driver root.
func Program(root string) string { return filepath.Join(root, "usr", "bin", "nvidia-cuda-mps-control") }

// Install puts the program below a driver root, under the real one's name, and returns its path.
func Install(tb testing.TB, root string) string {
	tb.Helper()
	if err := InstallIn(root); err != nil {
		tb.Fatal(err)
	}
	return Program(root)
}

// InstallIn puts the program below a driver root.
func InstallIn(root string) error {
	data, err := built()
	if err != nil {
		return err
	}
	path := Program(root)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the program's directory: %w", err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		return fmt.Errorf("installing the fake MPS: %w", err)
	}
	return nil
}

// built is the program, built once a process. It is static: it runs below roots that have no libraries.
var built = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "fakemps")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is below the temporary directory
	path := filepath.Join(dir, "fakemps")
	cmd := exec.Command("go", "build", "-o", path, "github.com/sluice-gpu/sluice/test/fakemps") //nolint:noctx // shared by all tests of the process
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the fake MPS: %w\n%s", err, out)
	}
	return os.ReadFile(path) //nolint:wrapcheck // it was written just now
})

// Client is a process that has asked for a server.
type Client struct {
	// PID is the process's.
	PID int

	cmd    *exec.Cmd
	input  io.Closer
	answer chan string
}

// Connect starts a client of a pipe directory, as a user.
func Connect(tb testing.TB, program, pipe string, user uint32) *Client {
	tb.Helper()
	c := &Client{cmd: exec.Command(program, "fake-client", pipe), answer: make(chan string, 1)} //nolint:noctx // the test ends it
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, NoSetGroups: true}}
	var err error
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c.PID = c.cmd.Process.Pid
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		c.answer <- strings.TrimSpace(line)
	}()
	tb.Cleanup(c.End)
	return c
}

// Server is what the client was answered: the PID of its server, or "plain" where it found no daemon.
func (c *Client) Server(tb testing.TB) string {
	tb.Helper()
	select {
	case answer := <-c.answer:
		c.answer <- answer
		return answer
	case <-time.After(answerTime):
		tb.Fatal("the client gets no answer")
		return ""
	}
}

// Waits is true as long as the client has no answer.
func (c *Client) Waits() bool { return len(c.answer) == 0 }

// End ends the client.
func (c *Client) End() {
	_ = c.input.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// Command runs a command of the control program and returns what it prints.
func Command(tb testing.TB, program, pipe, command string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), program)
	cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipe}
	cmd.Stdin = strings.NewReader(command + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// Daemons are the PIDs of the control daemons whose pipe directories are below a directory.
func Daemons(dir string) ([]int, error) {
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var pids []int
	for _, path := range environments {
		environment, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(environment, []byte("CUDA_MPS_PIPE_DIRECTORY="+dir+"/")) {
			continue // it has ended, or has nothing to do with it
		}
		arguments, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		pid, notNumber := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && notNumber == nil && bytes.Contains(arguments, []byte("\x00-f\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
