// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Spec says how a process is started.
type Spec struct {
	// Path is the program, Args its arguments without the name.
	Path string
	Args []string
	// Env is the whole environment; empty means none.
	Env []string
	// Log is the file that standard output and error are appended to.
	Log string
	// Sys holds settings such as namespaces; nil means a session of its own, so that the process survives its starter.
	Sys *syscall.SysProcAttr
}

// Process is a started child.
type Process struct {
	Identity

	done chan struct{}
	err  error
}

// Start starts a process. Its end is noticed for as long as the starter lives.
func Start(spec Spec) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(spec.Log), 0o755); err != nil {
		return nil, fmt.Errorf("making the log directory: %w", err)
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = spec.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = spec.Sys
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Path, err)
	}
	// A child cannot vanish before it is waited for, so its state can be read even if it has ended already.
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("identifying %s: %w", spec.Path, err)
	}
	p := &Process{Identity: id, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended; nil is exit status 0. It is valid once Done is closed.
func (p *Process) Err() error { return p.err }

// Tail returns the last lines of a log file, to be shown when what wrote it has failed.
func Tail(path string, lines int) string {
	const window = 64 << 10
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	size := min(info.Size(), window)
	buf := make([]byte, size)
	n, _ := f.ReadAt(buf, info.Size()-size)
	all := strings.Split(strings.TrimRight(string(buf[:n]), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
