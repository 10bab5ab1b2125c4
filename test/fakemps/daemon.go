// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// refuseFile in the log directory makes a daemon refuse -M, as old ones do.
const refuseFile = "refuse-multiuser"

type daemon struct {
	pipe      string
	three     bool
	multiUser bool
	refuses   bool

	mu      sync.Mutex
	free    *sync.Cond
	server  *exec.Cmd
	user    int
	clients map[int]string // PID to namespace
	fault   bool
	named   map[string]*namespace
	has     bool // the named server of protocol 3 exists
}

type namespace struct {
	memory, percent, priority string
	listener                  net.Listener
}

func newDaemon(pipe string, args []string) *daemon {
	_, err := os.Stat(filepath.Join(filepath.Dir(pipe), refuseFile)) //nolint:gosec // G703: it is the test's own directory
	d := &daemon{
		pipe: pipe, three: slices.Contains(args, "3"), multiUser: slices.Contains(args, "-M") || slices.Contains(args, "-m"),
		clients: map[int]string{}, named: map[string]*namespace{},
	}
	d.refuses = err == nil && d.multiUser
	d.free = sync.NewCond(&d.mu)
	return d
}

func (d *daemon) serve() error {
	if d.refuses {
		return errors.New("nvidia-cuda-mps-control: invalid option -- 'M'")
	}
	if os.Getenv("CUDA_VISIBLE_DEVICES") == "" {
		return errors.New("no device is visible")
	}
	listener, err := d.listen(d.pipe)
	if err != nil {
		return err
	}
	d.accept(listener, "default")
	return nil
}

func (d *daemon) listen(dir string) (*net.UnixListener, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G703: it is the test's own directory
		return nil, err
	}
	path := filepath.Join(dir, "control")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(path, 0o777) //nolint:gosec // G703: it is the test's own directory
}

func (d *daemon) accept(listener *net.UnixListener, where string) {
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		go d.handle(conn, where)
	}
}

func (d *daemon) handle(conn *net.UnixConn, where string) {
	defer conn.Close() //nolint:errcheck // it is only read from
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	line = strings.TrimSpace(line)
	if command, ok := strings.CutPrefix(line, "command "); ok {
		d.command(conn, strings.Fields(command))
		return
	}
	peer, err := peerOf(conn)
	if err != nil {
		return
	}
	server, err := d.join(int(peer.Pid), int(peer.Uid), where)
	if err != nil {
		fmt.Fprintln(conn, err)
		return
	}
	fmt.Fprintln(conn, server)
	_, _ = reader.ReadString('\n') // until it is gone
	d.mu.Lock()
	delete(d.clients, int(peer.Pid))
	if len(d.clients) == 0 && d.fault {
		d.endServer()
	}
	d.free.Broadcast()
	d.mu.Unlock()
}

func peerOf(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return peer, errors.Join(err, controlErr)
}

// join makes a process a client, where necessary once those of another user are gone.
func (d *daemon) join(pid, user int, where string) (server int, err error) {
	const most = 48
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.multiUser && d.server != nil && d.user != user && len(d.clients) > 0 {
		d.free.Wait()
	}
	if d.server != nil && d.user != user && !d.multiUser {
		d.endServer()
	}
	if len(d.clients) == most {
		return 0, errors.New("error 808")
	}
	if d.server == nil {
		// The daemon may be in another root, where this program has the path that it was started by.
		started := exec.Command(os.Args[0], "fake-server") //nolint:gosec,noctx // G702: it is this program, and outlives the call
		// Its standard input ends with the daemon. Nothing is left open to /dev/null, which may not be there.
		if _, err := started.StdinPipe(); err != nil {
			return 0, err
		}
		started.Args[0] = "/usr/bin/nvidia-cuda-mps-server"
		started.Stdout, started.Stderr = os.Stdout, os.Stderr
		if err := started.Start(); err != nil {
			return 0, err
		}
		d.server, d.user = started, user
	}
	d.clients[pid] = where
	return d.server.Process.Pid, nil
}

func (d *daemon) endServer() {
	_ = d.server.Process.Signal(syscall.SIGKILL)
	_ = d.server.Wait()
	d.server, d.fault = nil, false
}

func (d *daemon) servers() []string {
	if d.server == nil {
		return nil
	}
	return []string{strconv.Itoa(d.server.Process.Pid)}
}
