// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-gpu/sluice/node-agent/nodens"
)

// State is what a daemon says of itself.
type State struct {
	// Servers and Clients are PIDs on the node.
	Servers, Clients []int
	// Faulty are the servers that a client's fault has stopped: they take no clients until all that they had are gone.
	Faulty []int
	// MultiUser is true where processes of several users may be clients at the same time.
	MultiUser bool
	// Marked are the UIDs of the claims whose daemon had ended by itself.
	Marked []string
}

// State asks the daemon of a device. It is ErrNoDaemon where there is none.
func (d *Door) State(ctx context.Context, device string) (State, error) {
	r, err := d.read(device)
	if err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}
	s := State{MultiUser: r.MultiUser, Marked: r.Marked}
	if !d.alive(r) {
		return s, fmt.Errorf("%s: %w", device, ErrNoDaemon)
	}
	if r.Protocol == protocol3 {
		err = d.state3(ctx, r, &s)
	} else {
		err = d.state2(ctx, r, &s)
	}
	if err != nil {
		return s, fmt.Errorf("asking the MPS daemon of %s: %w", device, err)
	}
	return s, nil
}

func (d *Door) state2(ctx context.Context, r record, s *State) error {
	out, err := d.ask(ctx, r, nil, "get_server_list")
	if err != nil {
		return err
	}
	s.Servers = numbers(out)
	for _, pid := range s.Servers {
		clients, err := d.ask(ctx, r, nil, fmt.Sprintf("get_client_list %d", pid))
		if err != nil {
			return err
		}
		s.Clients = append(s.Clients, numbers(clients)...)
		status, err := d.ask(ctx, r, nil, fmt.Sprintf("get_server_status %d", pid))
		if err != nil {
			return err
		}
		if strings.Contains(strings.ToUpper(status), "FAULT") {
			s.Faulty = append(s.Faulty, pid)
		}
	}
	return nil
}

func (d *Door) state3(ctx context.Context, r record, s *State) error {
	out, err := d.ask(ctx, r, []string{"server", "list", "--format=csv,noheader"}, "")
	if err != nil {
		return err
	}
	const pidColumn, statusColumn = 2, 3
	for line := range strings.Lines(out) {
		columns := strings.Split(strings.TrimSpace(line), ",")
		if len(columns) <= statusColumn {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(columns[pidColumn]))
		if err != nil || pid <= 0 {
			continue // it has no process until it has a client
		}
		s.Servers = append(s.Servers, pid)
		if strings.Contains(strings.ToUpper(columns[statusColumn]), "FAULT") {
			s.Faulty = append(s.Faulty, pid)
		}
	}
	out, err = d.ask(ctx, r, []string{"client", "list", "--all", "--format=csv,noheader"}, "")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		pid, _, _ := strings.Cut(line, ",")
		s.Clients = append(s.Clients, numbers(pid)...)
	}
	slices.Sort(s.Clients)
	s.Clients = slices.Compact(s.Clients)
	return nil
}

// introduce tells a daemon of protocol 3 about a client. One of protocol 2 learns of it when it comes.
func (d *Door) introduce(ctx context.Context, r record, c Client) error {
	if r.Protocol != protocol3 {
		return nil
	}
	name := namespace(c)
	known, err := d.namespaces(ctx, r)
	if err != nil {
		return err
	}
	if !slices.Contains(known, name) {
		if _, err := d.ask(ctx, r, []string{"namespace", "create", name, "--server=" + server}, ""); err != nil {
			return err
		}
	}
	percent, priority := c.Percent, 0
	if percent == 0 {
		percent, priority = 100, 1
	}
	_, err = d.ask(ctx, r, []string{
		"namespace", "set", name, "--server=" + server, fmt.Sprintf("--pinned-memory-limit=%dM", c.MemoryMiB),
		fmt.Sprintf("--active-thread-percentage=%d", percent), fmt.Sprintf("--client-priority=%d", priority),
	}, "")
	return err
}

// forget deletes the namespaces of clients that are gone.
func (d *Door) forget(ctx context.Context, device string, clients []Client) error {
	r, err := d.read(device)
	if err != nil || r.Protocol != protocol3 || !d.alive(r) {
		return nil //nolint:nilerr // what has no daemon has no namespaces
	}
	known, err := d.namespaces(ctx, r)
	if err != nil {
		return fmt.Errorf("listing the clients of the MPS daemon of %s: %w", device, err)
	}
	for _, name := range known {
		if name == "default" || slices.ContainsFunc(clients, func(c Client) bool { return namespace(c) == name }) {
			continue
		}
		if _, err := d.ask(ctx, r, []string{"namespace", "delete", name, "--server=" + server, "--force"}, ""); err != nil {
			return fmt.Errorf("removing a client of the MPS daemon of %s: %w", device, err)
		}
	}
	return nil
}

func (d *Door) namespaces(ctx context.Context, r record) ([]string, error) {
	out, err := d.ask(ctx, r, []string{"namespace", "list", "--server=" + server, "--format=csv,noheader"}, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), ","); name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

var errRefused = errors.New("the MPS daemon refuses")

// ask runs the control program against a daemon, from where the daemon is, and returns what it prints.
func (d *Door) ask(ctx context.Context, r record, args []string, input string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	what := strings.TrimSpace(strings.Join(args, " ") + input)
	var out, trouble bytes.Buffer
	var cmd *exec.Cmd
	err := nodens.OnThread(func() error {
		if err := enterProcess(d.options.Proc, r.PID); err != nil {
			return err
		}
		program, err := findProgram("/")
		if err != nil {
			return err
		}
		cmd = exec.CommandContext(ctx, program, args...)
		cmd.Env = d.environment(r.Device)
		cmd.Dir = "/"
		cmd.Stdout, cmd.Stderr = &out, &trouble
		// Always a pipe: where the daemon is there may be no /dev/null.
		cmd.Stdin = strings.NewReader(input + "\n")
		return cmd.Start() //nolint:wrapcheck // wrapped below
	})
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w %s", what, err, strings.TrimSpace(out.String()+trouble.String()))
	}
	if text := strings.ToLower(out.String()); strings.Contains(text, "error") || strings.Contains(text, "cannot find mps") {
		return "", fmt.Errorf("%s: %w: %s", what, errRefused, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

// numbers are the lines that are a number.
func numbers(text string) []int {
	var list []int
	for line := range strings.Lines(text) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && n > 0 {
			list = append(list, n)
		}
	}
	return list
}
