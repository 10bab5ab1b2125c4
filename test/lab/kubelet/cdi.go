// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// cdiSpec is the part of a CDI specification that a container would notice.
type cdiSpec struct {
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
	Edits   cdiEdits    `json:"containerEdits"`
}

type cdiDevice struct {
	Name  string   `json:"name"`
	Edits cdiEdits `json:"containerEdits"`
}

// cdiEdits is what CDI devices change in a container.
type cdiEdits struct {
	Env         []string        `json:"env,omitempty"`
	DeviceNodes []cdiDeviceNode `json:"deviceNodes,omitempty"`
	Mounts      []cdiMount      `json:"mounts,omitempty"`
	Hooks       []cdiHook       `json:"hooks,omitempty"`
}

type cdiDeviceNode struct {
	Path     string `json:"path"`
	HostPath string `json:"hostPath,omitempty"`
}

type cdiMount struct {
	HostPath      string   `json:"hostPath"`
	ContainerPath string   `json:"containerPath"`
	Options       []string `json:"options,omitempty"`
}

type cdiHook struct {
	HookName string   `json:"hookName"`
	Path     string   `json:"path"`
	Args     []string `json:"args,omitempty"`
}

func (e *cdiEdits) add(other cdiEdits) {
	e.Env = append(e.Env, other.Env...)
	e.DeviceNodes = append(e.DeviceNodes, other.DeviceNodes...)
	e.Mounts = append(e.Mounts, other.Mounts...)
	e.Hooks = append(e.Hooks, other.Hooks...)
}

// loadCDI reads all specifications of a directory. One that cannot be read is left out, as runtimes do, and told of.
func loadCDI(dir string) ([]cdiSpec, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing CDI specifications: %w", err)
	}
	var specs []cdiSpec
	var errs []error
	for _, entry := range entries {
		if !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(entry.Name())) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		var spec cdiSpec
		if err == nil {
			err = yaml.Unmarshal(content, &spec)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the CDI specification %s: %w", path, err))
			continue
		}
		specs = append(specs, spec)
	}
	return specs, errors.Join(errs...)
}

// resolveCDI sums up what the devices change in a container. A device that no specification defines, or that two
// define, is an error, as it is for a container runtime.
func resolveCDI(specs []cdiSpec, ids []string) (cdiEdits, error) {
	var edits cdiEdits
	var errs []error
	common := map[int]bool{}
	for _, id := range ids {
		kind, name, _ := strings.Cut(id, "=")
		found := 0
		for i, spec := range specs {
			if spec.Kind != kind {
				continue
			}
			for _, device := range spec.Devices {
				if device.Name != name {
					continue
				}
				found++
				if !common[i] {
					common[i] = true
					edits.add(spec.Edits)
				}
				edits.add(device.Edits)
			}
		}
		switch {
		case found == 0:
			errs = append(errs, fmt.Errorf("no CDI specification defines the device %s", id))
		case found > 1:
			errs = append(errs, fmt.Errorf("%d CDI specifications define the device %s", found, id))
		}
	}
	return edits, errors.Join(errs...)
}

// missingPaths says which of the host's files that the edits need are not there.
func missingPaths(edits cdiEdits, exists func(path string) bool) error {
	var errs []error
	check := func(what, path string) {
		if !exists(path) {
			errs = append(errs, fmt.Errorf("%s %s does not exist on the node", what, path))
		}
	}
	for _, node := range edits.DeviceNodes {
		path := node.HostPath
		if path == "" {
			path = node.Path
		}
		check("the device node", path)
	}
	for _, mount := range edits.Mounts {
		check("the mount source", mount.HostPath)
	}
	return errors.Join(errs...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
