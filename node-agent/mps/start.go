// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/nodens"
)

// process is a daemon that was started just now.
type process struct {
	pid   int
	ended <-chan struct{}
}

// start starts the daemon of a client's device and waits until it answers. Marks of the one before it are kept.
func (d *Door) start(ctx context.Context, c Client, before record) (record, error) {
	r := record{
		Device: c.Device, Protocol: protocolOf(c), MultiUser: true, Marked: before.Marked, MarkedAt: before.MarkedAt,
	}
	if err := d.endDaemons(c.Device); err != nil {
		return record{}, err
	}
	err := d.try(ctx, &r)
	if r.Protocol == protocol2 && errors.Is(err, errEnded) {
		// Older drivers do not know servers for several users: then one user has the device at a time, and the
		// daemon lets the others wait.
		d.log.Info("The MPS daemon does not start for several users; it is started for one at a time", "device", c.Device,
			"error", err.Error())
		r.MultiUser = false
		err = d.try(ctx, &r)
	}
	if err != nil {
		return record{}, err
	}
	d.log.Info("Started an MPS daemon", "device", c.Device, "pid", r.PID, "protocol", r.Protocol, "multiUser", r.MultiUser)
	return r, nil
}

// try starts a daemon as the record says and completes the record.
func (d *Door) try(ctx context.Context, r *record) error {
	p, err := d.launch(*r)
	if err != nil {
		return err
	}
	r.PID = p.pid
	if r.StartTime, err = d.startTime(p.pid); err != nil {
		err = fmt.Errorf("%w: %w: %s", ErrNoDaemon, err, d.lastWords(r.Device))
	} else {
		// First of all, so that whatever happens now the next call finds it.
		err = d.write(*r)
	}
	if err == nil {
		err = d.ready(ctx, *r, p)
	}
	if err != nil {
		_ = unix.Kill(p.pid, unix.SIGKILL) // it is this process's child, so its PID is nobody else's
		return err
	}
	return nil
}

// ready waits until a daemon answers.
func (d *Door) ready(ctx context.Context, r record, p process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			return fmt.Errorf("%w: %w: %s", ErrNoDaemon, errEnded, d.lastWords(r.Device))
		case <-ctx.Done():
			return fmt.Errorf("%w: it does not answer: %w", ErrNoDaemon, ctx.Err())
		case <-tick.C:
		}
		if _, err := os.Stat(filepath.Join(d.pipe(r.Device), "control")); err != nil {
			continue
		}
		if err := d.greet(ctx, r); err == nil {
			return nil
		}
	}
}

// greet asks a daemon for something, and makes the server of one of protocol 3.
func (d *Door) greet(ctx context.Context, r record) error {
	if r.Protocol == protocol2 {
		_, err := d.ask(ctx, r, nil, "get_server_list")
		return err
	}
	out, err := d.ask(ctx, r, []string{"server", "list", "--format=csv,noheader"}, "")
	if err != nil || strings.Contains("\n"+out, "\n"+server+",") {
		return err
	}
	_, err = d.ask(ctx, r, []string{"server", "create", server, "--uid=0", "--allowed-devices=" + r.Device}, "")
	return err
}

// launch starts the process, outside of the agent's cgroup and mount namespace.
func (d *Door) launch(r record) (process, error) {
	var cmd *exec.Cmd
	err := nodens.OnThread(func() error {
		if err := nodens.Enter(d.options.Namespace); err != nil {
			return err
		}
		program, err := findProgram(d.options.DriverRoot)
		if err != nil {
			return err
		}
		if err := d.makeDirs(r.Device); err != nil {
			return err
		}
		cgroup, err := d.openCgroup(r.Device)
		if err != nil {
			return err
		}
		defer cgroup.Close()
		output, err := os.OpenFile(d.outputPath(r.Device), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("opening the daemon's output: %w", err)
		}
		defer output.Close()
		if err := d.furnish(r.Device); err != nil {
			return err
		}
		cmd = exec.Command(program, arguments(r)...) //nolint:noctx // it is to outlive this process
		cmd.Env, cmd.Dir = d.environment(r.Device), "/"
		cmd.Stdout, cmd.Stderr = output, output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if d.options.DriverRoot != "/" {
			cmd.SysProcAttr.Chroot = d.options.DriverRoot
		}
		if cgroup != nil {
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(cgroup.Fd())
		}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("starting %s: %w", program, err)
		}
		return nil
	})
	if err != nil {
		return process{}, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // however it ends: it is looked for in /proc
	}()
	return process{pid: cmd.Process.Pid, ended: ended}, nil
}

// arguments of the control program that make it a daemon in the foreground, so that its PID is the one that was started.
func arguments(r record) []string {
	args := []string{"-f"}
	if r.Protocol == protocol3 {
		return append(args, "-p", "3", "-m")
	}
	if r.MultiUser {
		args = append(args, "-M")
	}
	return args
}

// environment of a daemon and of those who ask it. It sees its one device only, which its clients know as number 0.
func (d *Door) environment(device string) []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CUDA_VISIBLE_DEVICES=" + device,
		"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(device),
		"CUDA_MPS_LOG_DIRECTORY=" + d.logs(device),
	}
}

// Program is an error where the node has no program for daemons.
func (d *Door) Program() error {
	return nodens.OnThread(func() error {
		if err := nodens.Enter(d.options.Namespace); err != nil {
			return err
		}
		_, err := findProgram(d.options.DriverRoot)
		return err
	})
}

// findProgram is the path of the control program below a root, as it is called from there.
func findProgram(root string) (string, error) {
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/bin", "/opt/bin"} {
		if info, err := os.Stat(filepath.Join(root, dir, controlProgram)); err == nil && info.Mode().IsRegular() {
			return filepath.Join(dir, controlProgram), nil
		}
	}
	return "", fmt.Errorf("looking below %s: %w", root, ErrNoProgram)
}

func (d *Door) outputPath(device string) string { return filepath.Join(d.logs(device), "output") }

// lastWords are what a daemon printed, as far as that fits into a message.
func (d *Door) lastWords(device string) string {
	const bound = 256
	data, err := os.ReadFile(d.outputPath(device))
	if err != nil {
		return "it left no output"
	}
	text := strings.TrimSpace(strings.ToValidUTF8(string(data), "?"))
	return text[max(0, len(text)-bound):]
}

// stop ends the daemon of a device and removes what it had.
func (d *Door) stop(ctx context.Context, device string) error {
	r, err := d.read(device)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && d.alive(r) {
		d.log.Info("Stopping an MPS daemon", "device", device, "pid", r.PID)
		if err := d.quit(ctx, r); err != nil {
			return err
		}
	}
	if err := d.endAll(device); err != nil {
		return err
	}
	return nodens.OnThread(func() error {
		if err := nodens.Enter(d.options.Namespace); err != nil {
			return err
		}
		if err := d.removeCgroup(device); err != nil {
			return err
		}
		if err := unix.Unmount(d.shm(device), unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			return fmt.Errorf("unmounting the shared memory of the clients: %w", err)
		}
		if err := os.RemoveAll(d.dir(device)); err != nil {
			return fmt.Errorf("removing the directory of the daemon: %w", err)
		}
		return nil
	})
}

// quit asks a daemon to end, and ends it where it does not.
func (d *Door) quit(ctx context.Context, r record) error {
	args, input := []string(nil), "quit"
	if r.Protocol == protocol3 {
		args, input = []string{"-q"}, ""
	}
	patience := quitTime
	if _, err := d.ask(ctx, r, args, input); err != nil {
		patience = 0
		d.log.Info("An MPS daemon does not take the request to end", "device", r.Device, "error", err.Error())
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for d.alive(r) {
		select {
		case <-tick.C:
		case <-deadline.C:
			if err := unix.Kill(r.PID, unix.SIGKILL); err != nil && err != unix.ESRCH {
				return fmt.Errorf("ending the daemon: %w", err)
			}
			deadline.Reset(quitTime)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the daemon to end: %w", ctx.Err())
		}
	}
	return nil
}
