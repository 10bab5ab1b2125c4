// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// The programs of MPS.
const (
	controlProgram = "nvidia-cuda-mps-control"
	serverProgram  = "nvidia-cuda-mps-server"
)

// endDaemons ends the daemons of a device that no record speaks of, since the agent that had started one was killed before
// it could record it. Servers are left to their clients.
func (d *Door) endDaemons(device string) error {
	return d.end(device, func(args []string) bool {
		return filepath.Base(args[0]) == controlProgram && slices.Contains(args, "-f")
	})
}

// endAll ends whatever of MPS is left of a device.
func (d *Door) endAll(device string) error {
	return d.end(device, func(args []string) bool {
		return filepath.Base(args[0]) == serverProgram || (filepath.Base(args[0]) == controlProgram && slices.Contains(args, "-f"))
	})
}

// end ends the processes that were started for a device's pipe directory and that match.
func (d *Door) end(device string, match func(args []string) bool) error {
	entries, err := os.ReadDir(d.options.Proc)
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	ours := []byte("CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(device))
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		args := d.strings(pid, "cmdline")
		if len(args) == 0 || !match(toStrings(args)) {
			continue
		}
		if !slices.ContainsFunc(d.strings(pid, "environ"), func(v []byte) bool { return bytes.Equal(v, ours) }) {
			continue
		}
		d.log.Info("Ending a process of MPS that was left behind", "device", device, "pid", pid)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return fmt.Errorf("ending process %d, which was left behind: %w", pid, err)
		}
	}
	return nil
}

// strings are those of a file of a process; none where it has ended.
func (d *Door) strings(pid int, file string) [][]byte {
	data, err := os.ReadFile(filepath.Join(d.options.Proc, strconv.Itoa(pid), file))
	if err != nil || len(data) == 0 {
		return nil
	}
	return bytes.Split(bytes.TrimRight(data, "\x00"), []byte{0})
}

func toStrings(list [][]byte) []string {
	texts := make([]string, 0, len(list))
	for _, b := range list {
		texts = append(texts, string(b))
	}
	return texts
}
