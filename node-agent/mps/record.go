// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// recordVersion is that of the record; another one is refused.
const recordVersion = 1

// record is what a daemon was started as.
type record struct {
	Version int    `json:"version"`
	Device  string `json:"device"`
	// PID and StartTime, in clock ticks after the boot, are the process, whoever has its PID later.
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"`
	// Protocol is 2 or 3.
	Protocol int `json:"protocol"`
	// MultiUser is true where processes of several users may be clients at the same time.
	MultiUser bool `json:"multiUser"`
	// Marked are the UIDs of the claims that were clients of a daemon which ended by itself, at MarkedAt.
	Marked   []string  `json:"marked,omitempty"`
	MarkedAt time.Time `json:"markedAt,omitzero"`
}

// mark notes the clients of a daemon that has ended.
func (r *record) mark(clients []Client, now time.Time) {
	for _, c := range clients {
		if !slices.Contains(r.Marked, c.ClaimUID) {
			r.Marked = append(r.Marked, c.ClaimUID)
		}
	}
	r.MarkedAt = now
}

func (d *Door) recordPath(device string) string { return filepath.Join(d.dir(device), "daemon.json") }

func (d *Door) read(device string) (record, error) {
	data, err := os.ReadFile(d.recordPath(device))
	if err != nil {
		return record{}, fmt.Errorf("reading the record of an MPS daemon: %w", err)
	}
	r := record{}
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("reading the record of an MPS daemon: %w", err)
	}
	if r.Version != recordVersion || r.Device != device {
		return record{}, fmt.Errorf("the record of the MPS daemon of %s has version %d and device %q", device, r.Version, r.Device)
	}
	return r, nil
}

// write replaces the record at once. It is not synced: it is about processes, which do not survive a crash of the node.
func (d *Door) write(r record) error {
	r.Version = recordVersion
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the record of an MPS daemon: %w", err)
	}
	path := d.recordPath(r.Device)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("writing the record of an MPS daemon: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replacing the record of an MPS daemon: %w", err)
	}
	return nil
}

// alive is true where the process of the record lives.
func (d *Door) alive(r record) bool {
	started, err := d.startTime(r.PID)
	return err == nil && r.PID > 0 && started == r.StartTime
}

var errEnded = errors.New("the process has ended")

// startTime is when a living process was started. Its stat has the command in parentheses, then its state, and its start as
// the 20th field after that.
func (d *Door) startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(d.options.Proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("looking for a process: %w", err)
	}
	const state, start = 0, 19
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return 0, errEnded
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading when a process was started: %w", err)
	}
	return ticks, nil
}
