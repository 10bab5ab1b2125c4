// SPDX-License-Identifier: Apache-2.0

package procs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What is read of a file of a process at most: a process can make its own files long.
const (
	maxStat   = 4 << 10
	maxCgroup = 64 << 10
	maxMounts = 1 << 20
)

// Container is a container of a pod, as a cgroup's path names it.
type Container struct {
	// Pod is the pod's UID, Name the cgroup of the container below the pod's.
	Pod, Name string
}

// ContainerOf is the container that a process is in, by its cgroup; false where it is in none.
func ContainerOf(proc string, pid int) (Container, bool) {
	data, err := readSome(filepath.Join(proc, strconv.Itoa(pid), "cgroup"), maxCgroup)
	if err != nil {
		return Container{}, false
	}
	for line := range strings.Lines(string(data)) {
		// hierarchy:controllers:path
		if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(parts) == 3 {
			if c, ok := containerIn(parts[2]); ok {
				return c, true
			}
		}
	}
	return Container{}, false
}

// containerIn finds the pod's part in a cgroup's path, and takes the one below it for the container. What is below that is
// the container's own doing. kubelet's systemd driver writes UIDs with underscores, and slices nest by name.
func containerIn(path string) (Container, bool) {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		at := strings.LastIndex(part, "pod")
		if at < 0 || (at > 0 && part[at-1] != '-') || i+1 == len(parts) {
			continue
		}
		uid := strings.ReplaceAll(strings.TrimSuffix(part[at+len("pod"):], ".slice"), "_", "-")
		if isUID(uid) && parts[i+1] != "" {
			return Container{Pod: uid, Name: parts[i+1]}, true
		}
	}
	return Container{}, false
}

// isUID is true of a pod's UID: a UUID, or the digest that a static pod has.
func isUID(text string) bool {
	digits := 0
	for _, r := range text {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'f':
			digits++
		case r != '-':
			return false
		}
	}
	return digits == 32
}

// Start is when a process was started, in clock ticks after boot: with its PID, what it is. A process that has ended and waits
// for its parent is none any more.
func Start(proc string, pid int) (uint64, error) {
	data, err := readSome(filepath.Join(proc, strconv.Itoa(pid), "stat"), maxStat)
	if err != nil {
		return 0, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	// The name, in parentheses, may hold anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	const state, start = 0, 19 // what the manual numbers 3 and 22
	if len(fields) <= start {
		return 0, fmt.Errorf("looking at process %d: %w", pid, io.ErrUnexpectedEOF)
	}
	if fields[state][0] == 'Z' || fields[state][0] == 'X' {
		return 0, fmt.Errorf("looking at process %d: %w", pid, os.ErrProcessDone)
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	return ticks, nil
}

// Mounted are what a process has mounted of a file system, by the paths in it, in the order of its mounts and as far as its
// list is read.
func Mounted(proc string, pid int, device uint64) ([]string, error) {
	data, err := readSome(filepath.Join(proc, strconv.Itoa(pid), "mountinfo"), maxMounts)
	if err != nil {
		return nil, fmt.Errorf("reading the mounts of process %d: %w", pid, err)
	}
	want := fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
	var roots []string
	for line := range strings.Lines(string(data)) {
		// id, parent, device, path in the file system, ...
		fields := strings.SplitN(line, " ", 5)
		if len(fields) == 5 && fields[2] == want {
			roots = append(roots, fields[3])
		}
	}
	return roots, nil
}

func readSome(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most))
	return data, err //nolint:wrapcheck // the caller says what was being done
}
