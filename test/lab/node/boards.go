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

// fakeGPUArgs lists the calls of fakegpu that make a node's GPUs: create for the first board, add for each further one,
// and the driver root once all are there.
func fakeGPUArgs(spec Spec, paths Paths) [][]string {
	calls := make([][]string, 0, len(spec.Boards)+1)
	for i, board := range spec.Boards {
		verb := "add"
		if i == 0 {
			verb = "create"
		}
		call := []string{verb, "--state", paths.GPUState, "--board", board.Name, "--gpus", strconv.Itoa(board.GPUs), "--mig", board.MIG}
		if i == 0 {
			call = append(call, "--seed", spec.Seed)
			if spec.Driver != "" {
				call = append(call, "--driver", spec.Driver)
			}
		}
		calls = append(calls, call)
	}
	return append(calls, []string{"root", "--state", paths.GPUState, "--root", paths.DriverRoot})
}

func makeGPUs(ctx context.Context, spec Spec, paths Paths) error {
	if spec.FakeGPU == "" {
		if len(spec.Boards) > 0 {
			return errors.New("boards need the fakegpu program")
		}
		return nil
	}
	if len(spec.Boards) == 0 {
		return errors.New("fakegpu needs at least one board")
	}
	for _, args := range fakeGPUArgs(spec, paths) {
		if err := fakeGPU(ctx, spec, args...); err != nil {
			return err
		}
	}
	return nil
}

func fakeGPU(ctx context.Context, spec Spec, args ...string) error {
	output, err := exec.CommandContext(ctx, spec.FakeGPU, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", spec.FakeGPU, strings.Join(args, " "), err, output)
	}
	return nil
}
