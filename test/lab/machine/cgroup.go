// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// makeCgroups makes the cgroup below which the machine's pods will be, in each hierarchy.
func makeCgroups(root, name string) error {
	list, unified, err := hierarchies(root)
	if err != nil {
		return err
	}
	if unified {
		enable(root)
	}
	for _, hierarchy := range list {
		dir := filepath.Join(hierarchy, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making the machine's cgroup: %w", err)
		}
		if unified {
			enable(dir)
		}
		// In version 1 a cpuset without processors takes no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			content, err := os.ReadFile(filepath.Join(hierarchy, file))
			if unified || err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
				return fmt.Errorf("setting the machine's %s: %w", file, err)
			}
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

// removeCgroups removes the machine's cgroups, the innermost first. No process is left in them.
func removeCgroups(root, name string) error {
	list, _, err := hierarchies(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, hierarchy := range list {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(hierarchy, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("looking for the machine's cgroups: %w", err))
		}
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("removing a cgroup: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
