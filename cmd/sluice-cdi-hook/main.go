// SPDX-License-Identifier: Apache-2.0

// Command sluice-cdi-hook is run by the container runtime before a container starts that has a share which NVIDIA's driver
// holds to its memory. It asks the node agent, which gives the driver the limits of the container's cgroup first. The start
// fails where the agent refuses or does not answer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/sluice-gpu/sluice/node-agent/hook"
)

// maxState bounds what is read of the container's state, in bytes.
const maxState = 1 << 20

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "sluice:", err)
		os.Exit(1)
	}
}

func run(args []string, stdin io.Reader) error {
	flags := flag.NewFlagSet("sluice-cdi-hook", flag.ContinueOnError)
	socket := flags.String("socket", "", "Socket of the node agent.")
	var q hook.Question
	flags.StringVar(&q.Claim, "claim", "", "UID of the ResourceClaim.")
	flags.IntVar(&q.Result, "result", 0, "Index of the result in the claim's allocation.")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the arguments: %w", err)
	}
	if *socket == "" || flags.NArg() > 0 {
		return errors.New("usage: sluice-cdi-hook --socket PATH --claim UID --result N, with the container's state on standard input")
	}
	pid, err := containerPID(stdin)
	if err != nil {
		return err
	}
	q.PID = pid
	ctx, cancel := context.WithTimeout(context.Background(), hook.AskTime)
	defer cancel()
	return hook.Ask(ctx, *socket, q) //nolint:wrapcheck // its errors are sentences already
}

// containerPID reads the state that the OCI runtime hands to hooks.
func containerPID(r io.Reader) (int, error) {
	var state struct {
		PID int `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(r, maxState)).Decode(&state); err != nil {
		return 0, fmt.Errorf("reading the container's state from standard input: %w", err)
	}
	if state.PID <= 0 {
		return 0, errors.New("the container's state names no process")
	}
	return state.PID, nil
}
