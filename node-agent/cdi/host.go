// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// onNode are edits with the paths that the container runtime sees, which is not in the agent's mount namespace. What the
// edits were made of stays as it is.
func onNode(edits specs.ContainerEdits, hostRoot string) specs.ContainerEdits {
	root := filepath.Clean("/" + hostRoot)
	if root == "/" {
		return edits
	}
	seen := func(path string) string {
		if below, ok := strings.CutPrefix(path, root+"/"); ok {
			return "/" + below
		}
		return path
	}
	nodes := make([]*specs.DeviceNode, 0, len(edits.DeviceNodes))
	for _, node := range edits.DeviceNodes {
		moved := *node
		moved.HostPath = seen(node.HostPath)
		nodes = append(nodes, &moved)
	}
	mounts := make([]*specs.Mount, 0, len(edits.Mounts))
	for _, mount := range edits.Mounts {
		moved := *mount
		moved.HostPath = seen(mount.HostPath)
		mounts = append(mounts, &moved)
	}
	edits.DeviceNodes, edits.Mounts = nodes, mounts
	return edits
}

// Programs are the paths of all hooks that the claims' specs name. A spec that cannot be read is an error: nobody knows what
// it names.
func (d *Door) Programs() ([]string, error) {
	uids, err := d.List()
	if err != nil {
		return nil, err
	}
	var programs []string
	for _, uid := range uids {
		data, err := os.ReadFile(d.path(uid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the CDI spec of claim %s: %w", uid, err)
		}
		spec := specs.Spec{}
		if err := json.Unmarshal(data, &spec); err != nil {
			return nil, fmt.Errorf("reading the CDI spec of claim %s: %w", uid, err)
		}
		programs = append(programs, hooksOf(spec)...)
	}
	return programs, nil
}

func hooksOf(spec specs.Spec) []string {
	var programs []string
	for _, hook := range spec.ContainerEdits.Hooks {
		programs = append(programs, hook.Path)
	}
	for _, device := range spec.Devices {
		for _, hook := range device.ContainerEdits.Hooks {
			programs = append(programs, hook.Path)
		}
	}
	return programs
}
