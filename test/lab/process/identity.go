// SPDX-License-Identifier: Apache-2.0

// Package process starts processes that outlive their starter, and stops exactly those again: a process is known by its
// PID, its start time and the boot it was started in, so that a reused PID is never hit.
package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Identity names one process for good.
type Identity struct {
	// PID is the process's number.
	PID int `json:"pid"`
	// StartTicks is the process's start time in clock ticks after boot, as in /proc/<pid>/stat.
	StartTicks uint64 `json:"startTicks"`
	// BootID is the boot the ticks count from.
	BootID string `json:"bootID"`
}

// ErrGone says that a process has ended.
var ErrGone = errors.New("the process has ended")

// Identify reads the identity of a running process.
func Identify(pid int) (Identity, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	boot, err := bootID()
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, StartTicks: stat.startTicks, BootID: boot}, nil
}

// Alive says whether this very process still runs; one that has ended but was not yet reaped does not.
func (id Identity) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	boot, err := bootID()
	if err != nil || boot != id.BootID {
		return false
	}
	stat, err := readStat(id.PID)
	return err == nil && stat.startTicks == id.StartTicks && stat.state != 'Z' && stat.state != 'X'
}

type stat struct {
	state      byte
	startTicks uint64
}

func readStat(pid int) (stat, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return stat{}, ErrGone
	}
	if err != nil {
		return stat{}, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	return parseStat(string(line))
}

// parseStat reads a line of /proc/<pid>/stat. The command's name is in parentheses and may itself hold spaces and
// parentheses, so fields are counted from the last closing one.
func parseStat(line string) (stat, error) {
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return stat{}, fmt.Errorf("no command name in the process state %q", line)
	}
	fields := strings.Fields(line[end+1:])
	const stateField, startField = 0, 19
	if len(fields) <= startField {
		return stat{}, fmt.Errorf("the process state %q has %d fields after the name, want more than %d", line, len(fields), startField)
	}
	ticks, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("reading the start time in the process state %q: %w", line, err)
	}
	return stat{state: fields[stateField][0], startTicks: ticks}, nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
