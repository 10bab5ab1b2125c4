// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// command carries out a command and writes the answer. "fault" is no command of the real one: it makes the server one that
// a client has broken.
func (d *daemon) command(out io.Writer, words []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case words[0] == "quit" || words[0] == "-q":
		if d.server != nil {
			d.endServer()
		}
		os.Exit(0) //nolint:revive // deep-exit: it is told to end
	case words[0] == "fault":
		d.fault = true
		d.free.Broadcast()
	case d.three:
		d.command3(out, words)
	default:
		d.command2(out, words)
	}
}

func (d *daemon) command2(out io.Writer, words []string) {
	known := len(words) > 1 && slices.Contains(d.servers(), words[1])
	switch {
	case words[0] == "get_server_list":
		for _, pid := range d.servers() {
			fmt.Fprintln(out, pid)
		}
	case words[0] == "get_client_list" && known:
		for pid := range d.clients {
			fmt.Fprintln(out, pid)
		}
	case words[0] == "get_server_status" && known:
		if d.fault {
			fmt.Fprintln(out, "FAULT")
		} else {
			fmt.Fprintln(out, "ACTIVE")
		}
	case words[0] == "get_client_list" || words[0] == "get_server_status":
		fmt.Fprintln(out, "Server not found")
	default:
		fmt.Fprintln(out, "Error: unknown command")
	}
}

func (d *daemon) command3(out io.Writer, words []string) {
	if len(words) < 2 {
		fmt.Fprintln(out, "Error: want a module and a verb")
		return
	}
	name := ""
	if len(words) > 2 && !strings.HasPrefix(words[2], "--") {
		name = words[2]
	}
	switch words[0] + " " + words[1] {
	case "server create":
		d.has = true
	case "server list":
		if d.has {
			pid, status := "-", "Idle"
			if d.server != nil {
				pid, status = d.servers()[0], map[bool]string{false: "Ready", true: "Fault"}[d.fault]
			}
			fmt.Fprintf(out, "sluice,0,%s,%s,%s,%s,-\n", pid, status, filepath.Join(d.pipe, "sluice"), os.Getenv("CUDA_VISIBLE_DEVICES"))
		}
	case "client list":
		for pid, where := range d.clients {
			fmt.Fprintf(out, "%d,sluice,0,%s,client\n", pid, where)
		}
	case "namespace list":
		for name, n := range d.named {
			fmt.Fprintf(out, "%s,sluice,Ready,%s,%s,%s,%s\n", name, n.memory, n.percent, n.priority, filepath.Join(d.pipe, "sluice", name))
		}
	case "namespace create":
		d.createNamespace(out, name)
	case "namespace set":
		d.setNamespace(out, name, words[3:])
	case "namespace delete":
		if n, ok := d.named[name]; ok {
			_ = n.listener.Close()
			_ = os.RemoveAll(filepath.Join(d.pipe, "sluice", name)) //nolint:gosec // G703: it is the test's own directory
			delete(d.named, name)
		}
	default:
		fmt.Fprintln(out, "Error: unknown command")
	}
}

func (d *daemon) createNamespace(out io.Writer, name string) {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || len(name) == 0 || len(name) > 64 || d.named[name] != nil || !d.has {
		fmt.Fprintln(out, "Error: bad namespace")
		return
	}
	listener, err := d.listen(filepath.Join(d.pipe, "sluice", name))
	if err != nil {
		fmt.Fprintln(out, "Error:", err)
		return
	}
	d.named[name] = &namespace{listener: listener}
	go d.accept(listener, name)
}

func (d *daemon) setNamespace(out io.Writer, name string, options []string) {
	n := d.named[name]
	if n == nil {
		fmt.Fprintln(out, "Error: no such namespace")
		return
	}
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "--pinned-memory-limit":
			n.memory = value
		case "--active-thread-percentage":
			n.percent = value
		case "--client-priority":
			n.priority = value
		}
	}
}
