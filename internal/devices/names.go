// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

const (
	gpuPrefix    = "gpu-"
	migSeparator = "-mig-"
)

// Name is the device name of a whole GPU.
func Name(minor int) string { return gpuPrefix + strconv.Itoa(minor) }

// PlacementName is the device name of a MIG placement.
func PlacementName(minor int, p gpu.Placement) string {
	return fmt.Sprintf("%s%s%s-%d", Name(minor), migSeparator, profileInName(p.Profile), p.Start)
}

// profileInName drops what a device name, a DNS label, cannot hold, and keeps 1g.10gb, 1g.10gb+me and 1g.10gb-me apart.
func profileInName(profile string) string {
	return strings.NewReplacer(".", "", "+", "p", "-", "m").Replace(profile)
}

// Minor is the number of the GPU that a device name belongs to, whole or divided; false where the name is not one of
// this driver's.
func Minor(name string) (int, bool) {
	number, found := strings.CutPrefix(name, gpuPrefix)
	if !found {
		return 0, false
	}
	number, _, _ = strings.Cut(number, migSeparator)
	minor, err := strconv.Atoi(number)
	return minor, err == nil && minor >= 0
}

// FindPlacement is the placement of a GPU that a device name means; false where the board offers none by that name.
func FindPlacement(g gpu.GPU, minor int, name string) (gpu.Profile, gpu.Placement, bool) {
	for _, profile := range g.Profiles {
		for _, start := range profile.Starts {
			p := gpu.Placement{Profile: profile.Name, Start: start}
			if PlacementName(minor, p) == name {
				return profile, p, true
			}
		}
	}
	return gpu.Profile{}, gpu.Placement{}, false
}
