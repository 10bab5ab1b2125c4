// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/library"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// enforced is true where the result's limits are to be held inside the processes.
func enforced(r checkpoint.Result) bool { return r.Enforced && hasShare(r) }

// libraryFor is the version of the library that the claim's containers are to start with, placed; "" where nothing is held
// inside its processes, or the node has no library.
func (p *Preparer) libraryFor(claim checkpoint.Claim) (string, error) {
	if !slices.ContainsFunc(claim.Results, enforced) {
		return "", nil
	}
	placed, err := p.Library.Place("")
	if err != nil {
		return "", fmt.Errorf("placing the library: %w", err)
	}
	return placed.Version, nil
}

// files writes the claim's shares and its CDI spec, and returns the CDI device of each result.
func (p *Preparer) files(claim checkpoint.Claim) ([]string, error) {
	var placed library.Placed
	if claim.Library != "" {
		var err error
		if placed, err = p.Library.Place(claim.Library); err != nil {
			return nil, fmt.Errorf("placing the library: %w", err)
		}
	}
	grants := make([]Grant, 0, len(claim.Results))
	for _, r := range claim.Results {
		grant, err := p.share(claim.UID, r, placed)
		if err != nil {
			return nil, err
		}
		grants = append(grants, grant)
	}
	ids, err := p.Specs.Write(claim.UID, grants)
	if err != nil {
		return nil, fmt.Errorf("writing the CDI spec: %w", err)
	}
	if len(ids) != len(grants) {
		return nil, fmt.Errorf("writing the CDI spec: %d devices for %d results", len(ids), len(grants))
	}
	return ids, nil
}

// share writes the share of a result and says what its container is to see.
func (p *Preparer) share(claimUID string, r checkpoint.Result, placed library.Placed) (Grant, error) {
	grant := Grant{Name: strconv.Itoa(r.Index), UUID: deviceUUID(r), Ask: byDriver(r)}
	if !hasShare(r) {
		return grant, nil
	}
	share := limits.Share{
		ClaimUID: claimUID, Index: r.Index, UUID: grant.UUID, ParentUUID: r.GPU,
		MemoryLimit: uint64(r.Memory), Context: p.Contexts.Context(r),
		ComputeShare: computeShare(r), Policy: policy(r.Capped),
	}
	if enforced(r) {
		share.Enforce = limits.EnforceMemory | limits.EnforceCompute
	}
	if byMPS(r) {
		// MPS gives out the threads; what a process sees as its memory, and what all of the share hold together, is the
		// library's.
		share.Enforce &^= limits.EnforceCompute
	}
	dir, err := p.Shares.Write(share)
	if err != nil {
		return Grant{}, fmt.Errorf("writing the share of %s: %w", r.Device, err)
	}
	grant.Mounts = mounts(dir, limits.ContainerDir(claimUID, r.Index), enforced(r), placed)
	if byMPS(r) {
		if err := p.access(&grant, claimUID, r); err != nil {
			return Grant{}, err
		}
	}
	return grant, nil
}

// mounts are the files of a share in its container. The limits are there in any case: a container can have a device that is
// held beside one that is not, and the library gives no memory on a device without limits. The library and what it works
// with come with a device that is held.
func mounts(dir, inside string, enforced bool, placed library.Placed) []Mount {
	list := []Mount{{
		HostPath: filepath.Join(dir, limits.LimitsFile), ContainerPath: path.Join(inside, limits.LimitsFile), ReadOnly: true,
	}}
	if !enforced || placed.Version == "" {
		return list
	}
	return append(list,
		Mount{HostPath: filepath.Join(dir, limits.UsageFile), ContainerPath: path.Join(inside, limits.UsageFile)},
		Mount{HostPath: filepath.Join(dir, limits.BellFile), ContainerPath: path.Join(inside, limits.BellFile)},
		Mount{HostPath: placed.File, ContainerPath: placed.ContainerFile, ReadOnly: true, Executable: true},
		Mount{HostPath: placed.Heartbeat, ContainerPath: limits.HeartbeatPath(), ReadOnly: true},
		Mount{HostPath: placed.Preload, ContainerPath: library.PreloadPath, ReadOnly: true},
	)
}

// computeShare is in hundredths of a percent of the result's own device. A MIG instance is all the claim's, or shared: then
// what was granted is percent of the whole GPU.
func computeShare(r checkpoint.Result) uint32 {
	const all = wholeGPU * 100
	switch {
	case r.Placement == nil:
		return uint32(r.Compute * 100)
	case !r.Shared || r.DeviceCompute <= 0:
		return all
	default:
		return uint32(min(all, r.Compute*all/r.DeviceCompute))
	}
}
