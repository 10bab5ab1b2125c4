// SPDX-License-Identifier: Apache-2.0

// Command fakemps behaves like nvidia-cuda-mps-control, as far as its users can see it: it is the control daemon (-f), with
// protocol 2 or 3 (-p 3), for one user at a time or for several (-M, -m), and it is the program that talks to one, by lines
// on its standard input or by arguments. Servers are processes of this program that do nothing. Clients connect to the socket
// of the pipe directory, as CUDA does; "fake-client DIR" is one, until its standard input ends.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(args []string) error {
	pipe := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	switch {
	case len(args) > 0 && args[0] == "fake-server":
		_, err := io.Copy(io.Discard, os.Stdin) // until the daemon is gone or lets go of it
		return err
	case len(args) == 2 && args[0] == "fake-client":
		return client(args[1])
	case slices.Contains(args, "-f"):
		return newDaemon(pipe, args).serve()
	case len(args) > 0:
		return talk(pipe, strings.Join(args, " "))
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			if err := talk(pipe, line); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// talk sends a command to the daemon and prints its answer.
func talk(pipe, command string) error {
	conn, err := net.Dial("unix", filepath.Join(pipe, "control")) //nolint:gosec // G704: it is a socket of the test
	if err != nil {
		return errors.New("Cannot find MPS control daemon process") //nolint:staticcheck // ST1005: the words of the real one
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "command %s\n", command); err != nil {
		return err
	}
	_, _ = io.Copy(os.Stdout, conn) // a daemon that was told to end may not answer
	return nil
}

// client is one until standard input ends. It prints the PID of its server, or that it had to do without one, as CUDA does
// without a word.
func client(pipe string) error {
	conn, err := net.Dial("unix", filepath.Join(pipe, "control")) //nolint:gosec // G704: it is a socket of the test
	if err != nil {
		fmt.Println("plain")
	} else {
		defer conn.Close()
		if _, err := fmt.Fprintln(conn, "client"); err != nil {
			return err
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return err
		}
		fmt.Print(answer)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
