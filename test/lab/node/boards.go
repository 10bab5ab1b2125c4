// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// ParseBoard reads a board as name:gpus[:on|off].
func ParseBoard(text string) (Board, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return Board{}, fmt.Errorf("the board %q is not as in a100-80gb:2 or a100-80gb:2:on", text)
	}
	gpus, err := strconv.Atoi(parts[1])
	if err != nil || gpus < 1 {
		return Board{}, fmt.Errorf("the board %q has %q for its number of GPUs, want 1 or more", text, parts[1])
	}
	board := Board{Name: parts[0], GPUs: gpus, MIG: "off"}
	if len(parts) == 3 {
		board.MIG = parts[2]
	}
	if board.MIG != "on" && board.MIG != "off" {
		return Board{}, fmt.Errorf("the board %q has %q for its MIG mode, want on or off", text, board.MIG)
	}
	return board, nil
}

// calls lists the calls of fakegpu that make the GPUs: create for the first board, add for each further one, and the driver
// root once all are there.
func (g GPUs) calls(state, driverRoot string) [][]string {
	calls := make([][]string, 0, len(g.Boards)+1)
	for i, board := range g.Boards {
		verb := "add"
		if i == 0 {
			verb = "create"
		}
		call := []string{verb, "--state", state, "--board", board.Name, "--gpus", strconv.Itoa(board.GPUs), "--mig", board.MIG}
		if i == 0 {
			call = append(call, "--seed", g.Seed)
			if g.Driver != "" {
				call = append(call, "--driver", g.Driver)
			}
			if g.Limits != "" {
				call = append(call, "--limits", g.Limits, "--dmem-anywhere")
			}
		}
		calls = append(calls, call)
	}
	return append(calls, []string{"root", "--state", state, "--root", driverRoot})
}

// Make makes the GPUs, in a state file, and their driver's root.
func (g GPUs) Make(ctx context.Context, state, driverRoot string) error {
	if g.FakeGPU == "" {
		if len(g.Boards) > 0 {
			return errors.New("boards need the fakegpu program")
		}
		return nil
	}
	if len(g.Boards) == 0 {
		return errors.New("fakegpu needs at least one board")
	}
	for _, args := range g.calls(state, driverRoot) {
		if err := g.run(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Reboot does to the GPUs what a reboot of their node does.
func (g GPUs) Reboot(ctx context.Context, state string) error {
	if g.FakeGPU == "" {
		return nil
	}
	return g.run(ctx, "reboot", "--state", state)
}

func (g GPUs) run(ctx context.Context, args ...string) error {
	output, err := exec.CommandContext(ctx, g.FakeGPU, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", g.FakeGPU, strings.Join(args, " "), err, output)
	}
	return nil
}
