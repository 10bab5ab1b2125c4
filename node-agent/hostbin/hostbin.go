// SPDX-License-Identifier: Apache-2.0

// Package hostbin gives the node copies of programs that come in the agent's image but are run outside of it: CDI hooks,
// which the container runtime runs. A CDI spec names the copy that its agent placed; a container that is started again is
// made by the same spec, so a copy stays while a spec names it.
package hostbin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-gpu/sluice/node-agent/placed"
)

const execMode = 0o755

// Door keeps the copies below one directory, which has the same path on the node.
type Door struct {
	// Dir is the directory.
	Dir string
}

// Place makes sure that there is a copy of a program and says where. Whoever places while another agent of the node does
// the same makes the same copy.
func (d Door) Place(source string) (string, error) {
	data, err := os.ReadFile(source)
	if err != nil {
		return "", fmt.Errorf("reading a program for the node: %w", err)
	}
	name, version := filepath.Base(source), placed.VersionOf(data)
	path := filepath.Join(d.Dir, name, version, name)
	if sound(path, data) {
		return path, nil
	}
	file := placed.File{Name: name, Data: data, Mode: execMode}
	if err := placed.Make(filepath.Join(d.Dir, name), version, true, file); err != nil && !sound(path, data) {
		return "", fmt.Errorf("placing %s on the node: %w", name, err)
	}
	return path, nil
}

// sound is true where a copy is there as it is to be. A crash of the node may have taken its content.
func sound(path string, data []byte) bool {
	info, err := os.Lstat(path) //nolint:gosec // below a directory that the agent is configured with
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != execMode {
		return false
	}
	there, err := os.ReadFile(path) //nolint:gosec // below a directory that the agent is configured with
	return err == nil && bytes.Equal(there, data)
}

// Sweep removes the copies that are not among those in use. Only the node's active agent sweeps, since only then no other
// one writes specs that name its own copies.
func (d Door) Sweep(inUse []string) error {
	used := map[string]bool{}
	for _, path := range inUse {
		used[filepath.Clean(path)] = true
	}
	programs, err := list(d.Dir)
	failed := []error{err}
	for _, program := range programs {
		versions, err := list(filepath.Join(d.Dir, program))
		failed = append(failed, err)
		for _, version := range versions {
			if !placed.IsVersion(version) || used[filepath.Join(d.Dir, program, version, program)] {
				continue
			}
			if err := os.RemoveAll(filepath.Join(d.Dir, program, version)); err != nil {
				failed = append(failed, fmt.Errorf("removing a program that nobody uses: %w", err))
			}
		}
	}
	return errors.Join(failed...)
}

// list names the directories in a directory, which need not be there.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the node's programs: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}
