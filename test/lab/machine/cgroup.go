// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	procsFile  = "cgroup.procs"
)

// hierarchies lists where cgroups are made: below each controller of version 1, or at the one place of version 2.
func hierarchies(root string) ([]string, bool, error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, true, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, false, fmt.Errorf("listing the cgroup controllers: %w", err)
	}
	var list []string
	for _, entry := range entries {
		if entry.IsDir() { // the others are links to them
			list = append(list, filepath.Join(root, entry.Name()))
		}
	}
	return list, false, nil
}

// makeCgroups makes the machine's cgroups in each hierarchy, and moves the calling process into that of its own programs.
func makeCgroups(root string, s *State) error {
	list, unified, err := hierarchies(root)
	if err != nil {
		return err
	}
	for _, hierarchy := range list {
		if unified {
			enable(hierarchy)
		}
		for _, name := range []string{s.cgroup(), s.podsCgroup(), s.ownCgroup()} {
			if err := makeCgroup(hierarchy, name, unified); err != nil {
				return err
			}
		}
		if unified {
			enable(filepath.Join(hierarchy, s.cgroup()))
		}
		own := filepath.Join(hierarchy, s.ownCgroup(), procsFile)
		if err := os.WriteFile(own, []byte("0"), 0o644); err != nil {
			return fmt.Errorf("entering the machine's cgroup: %w", err)
		}
	}
	return nil
}

func makeCgroup(hierarchy, name string, unified bool) error {
	dir := filepath.Join(hierarchy, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making the machine's cgroup: %w", err)
	}
	// In version 1 a cpuset without processors takes no process.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if unified || err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil { //nolint:gosec // the directory was made here
			return fmt.Errorf("setting the machine's %s: %w", file, err)
		}
	}
	return nil
}

// enable gives the children of a cgroup all controllers that can be had; one that cannot be is kubelet's to complain of.
func enable(dir string) {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for controller := range strings.FieldsSeq(string(content)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// cgroupDirs lists the machine's cgroups of a hierarchy, the outermost first.
func cgroupDirs(hierarchy, name string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(filepath.Join(hierarchy, name), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // it went while it was looked at
		}
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for the machine's cgroups: %w", err)
	}
	return dirs, nil
}

// clearCgroups ends the processes of the machine's cgroups and removes these, the innermost first, until there are none.
func clearCgroups(root, name string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		err := clearOnce(root, name)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func clearOnce(root, name string) error {
	list, _, err := hierarchies(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, hierarchy := range list {
		dirs, err := cgroupDirs(hierarchy, name)
		if err != nil {
			return err
		}
		for _, dir := range slices.Backward(dirs) {
			killAll(dir)
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("removing a cgroup of the machine: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// killAll ends a cgroup's processes. What is in it is the machine's, whatever its number.
func killAll(dir string) {
	content, err := os.ReadFile(filepath.Join(dir, procsFile))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(content)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
